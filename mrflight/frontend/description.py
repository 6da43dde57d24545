"""Describes the columns of a dataset by aggregates over all of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from mrflight.compute.layout import canonical_schema
from mrflight.config.aggregates import parse_aggregate
from mrflight.errors import JobError
from mrflight.tasks.operators.aggregates import check_aggregates

_MEASURES = ("count", "min", "max", "mean")

_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        ("type", pa.string()),
        ("count", pa.int64()),
        ("nulls", pa.int64()),
        ("min", pa.string()),
        ("max", pa.string()),
        ("mean", pa.float64()),
    ]
)


def aggregates_of(schema: pa.Schema) -> dict[str, str]:
    """Return the aggregates for `describe_columns`: those that the types of the columns allow."""
    return {"rows": "count(*)", **dict(_measures(canonical_schema(schema)))}


def _measures(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    for number, field in enumerate(schema):
        for function in _MEASURES:
            if function == "mean" and not _has_mean(field.type):
                continue
            name, text = f"{function} {number}", f'{function}("{field.name}")'
            try:
                check_aggregates(schema, (), (parse_aggregate(name, text),))
            except JobError:  # values of this type have no order
                continue
            yield name, text


def _has_mean(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def describe_columns(schema: pa.Schema, totals: pa.Table) -> pa.Table:
    """Return a row for each column from the one row of `aggregates_of`."""
    (found,) = totals.to_pylist()
    described = []
    for number, field in enumerate(schema):
        count = found[f"count {number}"]
        mean = found.get(f"mean {number}")
        described.append(
            {
                "column": field.name,
                "type": str(field.type),
                "count": count,
                "nulls": found["rows"] - count,
                "min": _text(found.get(f"min {number}")),
                "max": _text(found.get(f"max {number}")),
                "mean": None if mean is None else float(mean),
            }
        )
    return pa.Table.from_pylist(described, _SCHEMA)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
