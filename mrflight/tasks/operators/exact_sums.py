"""Sums and means of whole numbers and decimals, which never wrap around."""

from __future__ import annotations

from decimal import Context

import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc
from mrflight.compute.types import comparable
from mrflight.config.aggregates import Aggregate
from mrflight.errors import JobError

_WIDE = Context(prec=80)
"""More digits than a decimal256 has."""

_ROUNDING_MARGIN = 1 + 1e-6
"""A margin far above the rounding error of adding up the numbers of a partition as doubles."""


def is_whole(kind: pa.DataType) -> bool:
    """Return whether values of this type are added up as integers."""
    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_duration(kind))


def mean_of(kind: pa.DataType, sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the means of a column of type ``kind``; null where a sum is null.

    A mean of durations is a duration of the same unit, rounded to the nearest, halves away from
    zero. Any other mean is a float.
    """
    if types.is_duration(kind):
        return _divide_exactly(sums, counts).cast(kind)
    return pc.divide(sums.cast(pa.float64(), safe=False), counts)


def _divide_exactly(sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integer sums divided by counts, rounded half away from zero."""
    if types.is_decimal(sums.type):
        return divide_decimals(sums, counts, pa.decimal128(38, 0)).cast(pa.int64())
    sums, counts = sums.cast(pa.int64()), counts.cast(pa.int64())
    whole = pc.divide(sums, counts)  # truncates towards zero
    rest = pc.abs(pc.subtract(sums, pc.multiply(whole, counts)))
    rounds_up = pc.greater_equal(rest, pc.subtract(counts, rest))  # twice the rest might not fit
    return pc.add(whole, pc.if_else(rounds_up, pc.sign(sums), 0))


def divide_decimals(
    sums: pa.ChunkedArray, counts: pa.ChunkedArray, kind: pa.DataType
) -> pa.ChunkedArray:
    """Return means of the decimal type ``kind``, rounded half away from zero as Acero rounds them.

    This divides one group at a time, which is slow. It is used for groups of many rows.
    """
    from decimal import ROUND_HALF_UP

    exact = Context(prec=100, rounding=ROUND_HALF_UP)
    unit = exact.scaleb(1, -kind.scale)
    means = [
        None if total is None else exact.quantize(exact.divide(total, count), unit)
        for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(means, kind)])


def summable(column: pa.ChunkedArray, aggregate: Aggregate) -> pa.ChunkedArray:
    """Return the column cast to a type in which the sum of its values cannot wrap around."""
    kind = column.type
    if types.is_duration(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    if types.is_boolean(kind):
        return column.cast(pa.int64())
    if not (types.is_integer(kind) or types.is_decimal(kind)):
        return comparable(column)
    if may_overflow(column):
        return column.cast(_wider(kind, aggregate))
    if types.is_unsigned_integer(kind) and not types.is_uint64(kind):
        return column.cast(pa.int64())
    return comparable(column)


def may_overflow(column: pa.ChunkedArray) -> bool:
    """Return whether a sum of some of these numbers may overflow the type that Acero adds in.

    The answer follows from their count and extremes. Decimals of 76 digits have no wider type, so
    for these the sum of all magnitudes is computed as well.
    """
    if column.null_count == len(column):
        return False
    kind = column.type
    if types.is_decimal128(kind) and _magnitudes_below(column) * len(column) < 10**38:
        return False
    extremes = pc.min_max(comparable(column)).as_py()
    if types.is_integer(kind):
        return bool(max(-extremes["min"], extremes["max"]) * len(column) >= 2**63)
    largest = max(extremes["min"].copy_abs(), extremes["max"].copy_abs())
    is_wide = types.is_decimal256(kind)
    limit = 10 ** (76 if is_wide else 38)
    if int(largest.scaleb(kind.scale, _WIDE)) * len(column) < limit:
        return False
    if not is_wide:
        return True
    magnitude = pc.sum(pc.abs(column.cast(pa.float64()))).as_py()
    return bool(magnitude * 10.0**kind.scale * _ROUNDING_MARGIN >= limit)


def _magnitudes_below(column: pa.ChunkedArray) -> int:
    """Return a bound for the magnitudes of 128-bit decimals from the upper half of their bits.

    That takes a tenth of the time of finding their extremes. The bytes behind nulls count as well.
    """
    import numpy as np

    bound = 0
    for chunk in column.chunks:
        if len(chunk):
            halves = np.frombuffer(chunk.buffers()[1], np.int64, 2 * len(chunk), 16 * chunk.offset)
            upper = halves[1::2]
            bound = max(bound, (int(upper.max()) + 1) << 64, -int(upper.min()) << 64)
    return bound


def _wider(kind: pa.DataType, aggregate: Aggregate) -> pa.DataType:
    """Return a type for sums that are too large for ``kind``."""
    if types.is_integer(kind):
        return pa.decimal128(38, 0)
    if not types.is_decimal256(kind):
        return pa.decimal256(76, kind.scale)
    raise _overflow_error(aggregate)


def fit_sum(aggregate: Aggregate, kind: pa.DataType, result: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a sum in its own type.

    The type is int64 for integers and booleans (uint64 for uint64), a duration for durations, and a
    decimal of 38 digits for decimals that have no more. ``kind`` is the type of the column. Raises
    JobError if the sum does not fit.
    """
    if types.is_duration(kind):
        return fit_sum(aggregate, pa.int64(), result).cast(kind)
    if types.is_boolean(kind) or types.is_integer(kind):
        target = pa.uint64() if types.is_uint64(kind) else pa.int64()
    elif types.is_decimal(kind) and not types.is_decimal256(kind):
        target = pa.decimal128(38, kind.scale)
    else:
        return result
    try:
        return result if result.type == target else result.cast(target)
    except pa.ArrowInvalid as error:
        raise _overflow_error(aggregate) from error


def _overflow_error(aggregate: Aggregate) -> JobError:
    return JobError(
        f"reduce.aggregate.{aggregate.name}: {aggregate.function} of {aggregate.column!r} does not "
        "fit its type; convert the column to a float, or to a decimal of more digits, in the map"
    )
