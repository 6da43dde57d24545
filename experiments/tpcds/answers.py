"""Compares the rows of an answer with the right ones, in their order."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

NEAR = 1e-9
"""The relative tolerance of floats, which are summed in any order."""

ROUNDED = 2e-6
"""The relative tolerance between a float of DuckDB and a decimal of DataFusion, whose quotients are
cut behind four to six digits after the point, also where they are multiplied by 100 next."""


def difference(answer: pa.Table, right: pa.Table) -> str | None:
    """Return how an answer differs from the right one; None if it does not."""
    if (found := answer.num_columns) != (columns := right.num_columns):
        return f"{found} columns, not {columns}"
    if answer.num_rows != right.num_rows:
        return f"{answer.num_rows} rows, not {right.num_rows}"
    pairs = zip(_rows(answer), _rows(right), strict=True)
    wrong = [(row, other) for row, other in pairs if not _same_row(row, other)]
    if not wrong:
        return None
    return (
        f"{len(wrong)} of {right.num_rows} rows differ, the first: {wrong[0][0]}, not {wrong[0][1]}"
    )


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _same_row(row: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(map(same, row, other))


def same(value: Any, other: Any) -> bool:
    """Return whether two values are equal, except for the rounding of floats.

    DuckDB divides decimals, and takes their mean, as floats, and DataFusion as decimals.
    """
    if value is None or other is None or not (isinstance(value, float) or isinstance(other, float)):
        return bool(value == other)
    digit = max(_digit(value), _digit(other))
    return math.isclose(value, other, rel_tol=ROUNDED if digit else NEAR, abs_tol=digit)


def _digit(value: Any) -> float:
    """Return what the last digit of a decimal is worth; 0 for other numbers."""
    if not isinstance(value, Decimal):
        return 0.0
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return float(10.0**exponent)
