"""Describes the columns of a dataset by aggregates over all of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from mrflight.compute.layout import canonical_schema
from mrflight.config.aggregates import parse_aggregate
from mrflight.errors import JobError
from mrflight.tasks.operators.aggregates import check_aggregates

_COUNTED = {"count": "count({})", "min": "min({})", "max": "max({})"}
"""The aggregates of columns of any type that has them."""

_MEASURED = {
    "mean": "mean({})",
    "std": "stddev({})",
    "25%": "approx_quantile({}, 0.25)",
    "50%": "approx_quantile({}, 0.5)",
    "75%": "approx_quantile({}, 0.75)",
}
"""The aggregates of numbers. Exact quantiles would need all rows in one place."""

_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        ("type", pa.string()),
        ("count", pa.int64()),
        ("nulls", pa.int64()),
        ("min", pa.string()),
        ("max", pa.string()),
        *((name, pa.float64()) for name in _MEASURED),
    ]
)


def aggregates_of(schema: pa.Schema) -> dict[str, str]:
    """Return the aggregates for `describe_columns`: those that the types of the columns allow."""
    return {"rows": "count(*)", **dict(_aggregates(canonical_schema(schema)))}


def _aggregates(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    for number, field in enumerate(schema):
        calls = _COUNTED | _MEASURED if _is_measured(field.type) else _COUNTED
        quoted = '"' + field.name.replace('"', '""') + '"'
        for measure, call in calls.items():
            name, text = f"{measure} {number}", call.format(quoted)
            try:
                check_aggregates(schema, (), (parse_aggregate(name, text),))
            except JobError:  # values of this type have no order
                continue
            yield name, text


def _is_measured(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def describe_columns(schema: pa.Schema, totals: pa.Table) -> pa.Table:
    """Return a row for each column from the one row of `aggregates_of`."""
    (found,) = totals.to_pylist()
    described = []
    for number, field in enumerate(schema):
        count = found[f"count {number}"]
        measured = {name: found.get(f"{name} {number}") for name in _MEASURED}
        described.append(
            {
                "column": field.name,
                "type": str(field.type),
                "count": count,
                "nulls": found["rows"] - count,
                "min": _text(found.get(f"min {number}")),
                "max": _text(found.get(f"max {number}")),
                **{name: None if x is None else float(x) for name, x in measured.items()},
            }
        )
    return pa.Table.from_pylist(described, _SCHEMA)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
