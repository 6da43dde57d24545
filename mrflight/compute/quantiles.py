"""Exact quantiles of groups: values in order, and the linear interpolation between two of them.

The quantile q of n values is at the position q (n - 1) in their order, counted from 0. Between two
positions it is interpolated: this is quantile_cont in DuckDB and "linear" in Polars and NumPy.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import to_arrow, to_floats
from mrflight.compute.row_groups import RowGroups, nullable
from mrflight.compute.sort_codes import Rows, sort_codes
from mrflight.compute.sorting import indices
from mrflight.config.sort_key import ascending

_EXACT = Context(prec=200, rounding=ROUND_HALF_UP)


def quantile_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of quantiles of a column: decimals, times as `measured`, or else doubles."""
    kind = _measured_type(kind)
    return kind if types.is_decimal(kind) or types.is_temporal(kind) else pa.float64()


def measured(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values as points between which there are others: dates become timestamps."""
    kind = _measured_type(column.type)
    return column if column.type == kind else column.cast(kind)


def _measured_type(kind: pa.DataType) -> pa.DataType:
    if types.is_date(kind):
        return pa.timestamp("s" if types.is_date32(kind) else "ms")
    return kind


def sort_groups(column: pa.ChunkedArray, groups: RowGroups) -> RowGroups:
    """Return the rows of each group in the order of their values, without nulls; NaN comes last."""
    codes = sort_codes(pa.table({"value": column}), ascending(["value"]))
    return groups.valid(column).sorted_by(codes.values)


def quantiles(column: pa.ChunkedArray, ordered: RowGroups, fraction: float) -> pa.Array:
    """Return the quantile of each group of `sort_groups`; null for a group without values."""
    filled = ordered.lengths > 0
    low, high, weights = positions(ordered.lengths[filled], fraction)
    starts = ordered.starts[filled]
    points = measured(column)
    found = interpolate(
        points.take(indices(ordered.rows[starts + low])),
        points.take(indices(ordered.rows[starts + high])),
        weights,
    )
    if filled.all():
        return found
    places = nullable(to_arrow(np.cumsum(filled) - 1), filled)
    return found.take(places)


def positions(lengths: Rows, fraction: float) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Return the positions below and above the quantile of so many values, and the upper's weight.

    There is at least one value.
    """
    position = fraction * (lengths - 1)
    low = np.floor(position).astype(np.int64)
    return low, np.minimum(low + 1, lengths - 1), position - low


def interpolate(
    low: pa.ChunkedArray, high: pa.ChunkedArray, weights: npt.NDArray[np.float64]
) -> pa.Array:
    """Return ``low`` plus ``weights`` times the difference; neither has nulls.

    Decimals and times are rounded to the nearest value of their type, halves away from zero.
    """
    kind = quantile_type(low.type)
    if types.is_decimal(kind):
        return _between_decimals(low, high, weights, kind)
    if types.is_temporal(kind):
        return _between_times(low, high, weights, kind)
    return to_arrow(between(to_floats(low), to_floats(high), weights))


def between(
    low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Interpolate doubles, also infinite ones, and those whose difference does not fit a double."""
    with np.errstate(invalid="ignore", over="ignore"):
        between = low + (high - low) * weights
        scaled = low * (1 - weights) + high * weights
    between = np.where(np.isfinite(between), between, scaled)
    return np.where((low == high) | (weights == 0), low, between)


def _between_times(
    low: pa.ChunkedArray, high: pa.ChunkedArray, weights: npt.NDArray[np.float64], kind: pa.DataType
) -> pa.Array:
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    first, last = (each.cast(number).cast(pa.int64()).to_numpy() for each in (low, high))
    distance = last.view(np.uint64) - first.view(np.uint64)  # exact, although it may need 64 bits
    moved = distance.astype(np.longdouble) * weights
    whole = np.floor(moved)
    result = first + whole.astype(np.uint64).view(np.int64)
    rest = moved - whole
    result += (rest > 0.5) | ((rest == 0.5) & (result >= 0))
    return to_arrow(np.ascontiguousarray(result)).cast(number).cast(kind)


def _between_decimals(
    low: pa.ChunkedArray, high: pa.ChunkedArray, weights: npt.NDArray[np.float64], kind: pa.DataType
) -> pa.Array:
    unit = _EXACT.scaleb(1, -kind.scale)
    pairs = zip(low.to_pylist(), high.to_pylist(), weights.tolist(), strict=True)
    found = [_between_two(a, b, weight, unit) for a, b, weight in pairs]
    return pa.array(found, kind)


def _between_two(low: Decimal, high: Decimal, weight: float, unit: Decimal) -> Decimal:
    if low == high or not weight:
        return low
    exact: Any = Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(weight)
    value = _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return _EXACT.quantize(value, unit)
