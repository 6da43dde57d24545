"""`Dataset.describe` gives the counts, ranges and distributions of columns that Polars gives."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import polars as pl
import pyarrow as pa
from pyarrow import types

import mrflight

SMALL = {"cluster.workers": 1, "cluster.memory": "1 GiB"}

NUMBERS = 190

QUARTERS = {"25%": 0.25, "50%": 0.5, "75%": 0.75}

DISTRIBUTION = ("mean", "std", *QUARTERS)
"""The measures that only numbers have."""


def table() -> pa.Table:
    """Return 200 columns of all kinds, with four rows. The last row of the first ten is null."""
    hours = [dt.datetime(2024, 1, day, 10, tzinfo=dt.UTC) for day in (3, 1, 2)]
    amounts = [decimal.Decimal(text) for text in ("1.25", "2.50", "0.75")]
    return pa.table(
        {
            "integer": pa.array([3, 1, 2, None]),
            "large": pa.array([2**64 - 1, 1, 2, None], pa.uint64()),
            "float": pa.array([0.5, math.nan, -1.5, None]),
            "decimal": pa.array([*amounts, None], pa.decimal128(10, 2)),
            "a text": pa.array(["b", "a", "c", None]),
            "flag": pa.array([True, False, True, None]),
            "day": pa.array([*(each.date() for each in hours), None]),
            "at": pa.array([*hours, None], pa.timestamp("us", "UTC")),
            "list": pa.array([[1], [], [2, 3], None]),
            "struct": pa.array([{"x": 1}, {"x": None}, {"x": 3}, None]),
            **{f"n{k}": [k * row for row in range(4)] for k in range(NUMBERS)},
        }
    )


def described(rows: pa.Table) -> dict[str, dict[str, object]]:
    """Return the measures of each column."""
    found = mrflight.read(rows).with_settings(SMALL).describe(progress=False)
    return {row.pop("column"): row for row in found.to_pylist()}


def expected(column: pl.Series, kind: pa.DataType) -> dict[str, object]:
    """Return the measures of a column, by Polars."""
    has_range = not types.is_nested(kind)
    lowest = None if not has_range else column.min()
    highest = None if not has_range else column.max()
    return {
        "type": str(kind),
        "count": column.count(),
        "nulls": column.null_count(),
        "min": None if lowest is None else str(lowest),
        "max": None if highest is None else str(highest),
        **distribution(column, kind),
    }


def distribution(column: pl.Series, kind: pa.DataType) -> dict[str, object]:
    """Return the measures of numbers; a quartile between two values is interpolated."""
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        return dict.fromkeys(DISTRIBUTION)
    numbers = column.cast(pl.Float64)
    quartiles = {name: numbers.quantile(part, "linear") for name, part in QUARTERS.items()}
    return {"mean": numbers.mean(), "std": numbers.std(), **quartiles}


def test_columns_of_any_type_have_the_measures_of_polars() -> None:
    rows = table()
    found = described(rows)
    assert list(found) == rows.schema.names
    for name, column in found.items():
        of_polars = expected(pl.Series(pl.from_arrow(rows[name])), rows.schema.field(name).type)
        assert str(column) == str(of_polars), name  # as texts, in which NaN is equal to itself


def test_columns_without_rows_have_no_values() -> None:
    rows = table()[:0].select(range(10))
    nothing = {"count": 0, "nulls": 0, "min": None, "max": None, **dict.fromkeys(DISTRIBUTION)}
    assert described(rows) == {
        each.name: {"type": str(each.type), **nothing} for each in rows.schema
    }
