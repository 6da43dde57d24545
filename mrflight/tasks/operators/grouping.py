"""Groups and aggregates the rows of one partition with Acero.

This module adds what Acero lacks, so that the result is the result of SQL for every type: -0.0 and
0.0 are the same key, and so are all NaNs (as in the hash that partitioned them), integer sums never
wrap around, and first and last accept every type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Context
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import to_arrow
from mrflight.compute.types import canonical_floats, comparable
from mrflight.errors import JobError
from mrflight.tasks.operators.aggregates import Aggregate, AggregateFunction

_WIDE = Context(prec=80)
"""More digits than a decimal256 has."""

_ROUNDING_MARGIN = 1 + 1e-6
"""A margin far above the rounding error of adding up the numbers of a partition as doubles."""


class Call(NamedTuple):
    """One output column, ``name = function(column)``; errors name the aggregate ``aggregate``."""

    name: str
    function: AggregateFunction
    column: str | None
    aggregate: Aggregate
    fits: bool = True
    """True if a sum is cast to its own type. Otherwise it stays in a type that has room for it."""


def group(table: pa.Table, group_by: Sequence[str], aggregates: Sequence[Aggregate]) -> pa.Table:
    """Return one row per distinct key: the keys, then the aggregates in order.

    Null is a key like any other. Without ``group_by``, all rows have the same key; if there are no
    rows, use `group_without_rows`. The order of the result is not defined. The table's columns are
    in the canonical layout, as they come from a shuffle. Raises JobError for a sum that does not
    fit its type.
    """
    calls = [
        Call(aggregate.name, aggregate.function, aggregate.column, aggregate)
        for aggregate in aggregates
    ]
    return call_by_group(table, group_by, calls)


def group_without_rows(schema: pa.Schema, aggregates: Sequence[Aggregate]) -> pa.Table:
    """Return the result for no rows, if all rows are one group."""
    row = {each.name: [0 if each.is_count else None] for each in aggregates}
    return pa.table(row, schema=schema)


def call_by_group(table: pa.Table, group_by: Sequence[str], calls: Sequence[Call]) -> pa.Table:
    """Group as `group` does, with one column for each call."""
    columns = {f"key{i}": _groupable(table[name]) for i, name in enumerate(group_by)}
    if not group_by:
        columns["key"] = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int8()), len(table))])
    keys = list(columns)
    requests: list[tuple[str | list[str], str]] = []
    for i, call in enumerate(calls):
        column, functions = _prepare(table, call)
        if column is not None:
            columns[f"value{i}"] = column
        requests += [([] if column is None else f"value{i}", function) for function in functions]
    grouped = pa.table(columns).group_by(keys, use_threads=False).aggregate(requests)
    results = iter(grouped.columns[len(keys) :])
    outputs = [
        key if key.type == table[name].type else key.cast(table[name].type)
        for name, key in zip(group_by, grouped.columns, strict=False)
    ]
    outputs += [_finish(table, call, results) for call in calls]
    return pa.table(outputs, names=[*group_by, *(call.name for call in calls)])


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a key column as a type that Acero can group by, with equal values for equal keys."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    return canonical_floats(column)


def _prepare(table: pa.Table, call: Call) -> tuple[pa.ChunkedArray | None, list[str]]:
    """Return the column that Acero is given for this call, and the functions that it runs."""
    if call.column is None:
        return None, ["count_all"]
    column = table[call.column]
    match call.function:
        case "first":
            return _rows_with_value(column), ["min"]
        case "last":
            return _rows_with_value(column), ["max"]
        case "count_distinct" if types.is_null(column.type):
            # Acero would count one distinct value in a column of type null.
            return column.cast(pa.int64()), ["count_distinct"]
        case "count_distinct":
            return canonical_floats(column), ["count_distinct"]
        case "count":
            return _validity(column), ["count"]
        case "mean" if is_whole(column.type):
            # Acero adds integers as doubles, which loses small differences between large numbers.
            return _summable(column, call.aggregate), ["sum", "count"]
        case "sum" | "mean":
            return _summable(column, call.aggregate), [call.function]
        case _:
            return comparable(column), [call.function]


def _finish(table: pa.Table, call: Call, results: Iterator[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Convert Acero's next results to the result of the call."""
    result = next(results)
    if call.column is None or call.function in ("count", "count_distinct"):
        return result
    column = table[call.column]
    match call.function:
        case "first" | "last":
            return column.take(result)
        case "sum":
            return fit_sum(call.aggregate, column.type, result) if call.fits else result
        case "mean" if is_whole(column.type):
            return mean_of(column.type, result, next(results))
        case "mean":
            target = column.type if types.is_decimal(column.type) else pa.float64()
            return result if result.type == target else result.cast(target)
        case _:
            return result if result.type == column.type else result.cast(column.type)


def is_whole(kind: pa.DataType) -> bool:
    """Return whether values of this type are added up as integers."""
    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_duration(kind))


def mean_of(kind: pa.DataType, sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the means of a column of type ``kind``; null where a sum is null.

    A mean of durations is a duration of the same unit, rounded to the nearest, halves away from
    zero. Any other mean is a float.
    """
    import pyarrow.compute as pc

    if types.is_duration(kind):
        return _divide_exactly(sums, counts).cast(kind)
    return pc.divide(sums.cast(pa.float64(), safe=False), counts)


def _divide_exactly(sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integer sums divided by counts, rounded half away from zero."""
    import pyarrow.compute as pc

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


def _validity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column, or a small one with the same nulls if Acero cannot count the type."""
    import pyarrow.compute as pc

    if not types.is_nested(column.type):
        return column
    return pc.if_else(pc.is_valid(column), True, pa.scalar(None, pa.bool_()))


def _rows_with_value(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return row numbers, with null for each row that is null in the column.

    The minimum of these numbers is the row of the first value.
    """
    import numpy as np
    import pyarrow.compute as pc

    rows = to_arrow(np.arange(len(column), dtype=np.int64))
    return pc.if_else(column.is_valid().combine_chunks(), rows, pa.scalar(None, pa.int64()))


def _summable(column: pa.ChunkedArray, aggregate: Aggregate) -> pa.ChunkedArray:
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
    import pyarrow.compute as pc

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
