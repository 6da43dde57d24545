"""Groups and aggregates the rows of one partition, with Acero.

What Acero does not do by itself is done here, so that the result is that of
SQL for every type: -0.0 and 0.0 are one key and so are all NaNs (as in the
hash that brought them together), integer sums never wrap around, and first
and last take every type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Context

import pyarrow as pa
from pyarrow import types

from mrflight.aggregates import Aggregate
from mrflight.errors import JobError

_WIDE = Context(prec=80)
"""Digits of a decimal256, and some."""


def group(table: pa.Table, group_by: Sequence[str], aggregates: Sequence[Aggregate]) -> pa.Table:
    """One row per distinct key, null a key like others: the keys, then the aggregates in order.

    The rows come in no particular order. The table's columns are plain (no
    dictionaries or views), as they come from a shuffle. Raises JobError for a
    sum that does not fit its type.
    """
    keys = [f"key{i}" for i in range(len(group_by))]
    columns = {
        name: _canonical_floats(table[column]) for name, column in zip(keys, group_by, strict=True)
    }
    calls: list[tuple[str | list[str], str]] = []
    for i, aggregate in enumerate(aggregates):
        column, functions = _prepare(table, aggregate)
        if column is not None:
            columns[f"value{i}"] = column
        calls += [([] if column is None else f"value{i}", function) for function in functions]
    grouped = pa.table(columns).group_by(keys, use_threads=False).aggregate(calls)
    results = iter(grouped.columns[len(keys) :])
    outputs = grouped.columns[: len(keys)]
    outputs += [_finish(table, aggregate, results) for aggregate in aggregates]
    return pa.table(outputs, names=[*group_by, *(aggregate.name for aggregate in aggregates)])


def _prepare(table: pa.Table, aggregate: Aggregate) -> tuple[pa.ChunkedArray | None, list[str]]:
    """The column that Acero is given for this aggregate, and the functions it is asked for."""
    if aggregate.column is None:
        return None, ["count_all"]
    column = table[aggregate.column]
    match aggregate.function:
        case "first":
            return _rows_with_value(column), ["min"]
        case "last":
            return _rows_with_value(column), ["max"]
        case "count_distinct" if types.is_null(column.type):
            return column.cast(pa.int64()), ["count_distinct"]  # of nulls alone Acero counts one
        case "count_distinct":
            return _canonical_floats(column), ["count_distinct"]
        case "count":
            return _validity(column), ["count"]
        case "mean" if _is_mean_of_integers(aggregate, column.type):
            # Acero adds them up as doubles, which loses what large ones leave of each other.
            return _summable(column, aggregate), ["sum", "count"]
        case "sum" | "mean":
            return _summable(column, aggregate), [aggregate.function]
        case _:
            return _comparable(column), [aggregate.function]


def _finish(
    table: pa.Table, aggregate: Aggregate, results: Iterator[pa.ChunkedArray]
) -> pa.ChunkedArray:
    """Acero's next results as what the aggregate promises."""
    import pyarrow.compute as pc

    result = next(results)
    if aggregate.column is None or aggregate.function in ("count", "count_distinct"):
        return result
    column = table[aggregate.column]
    match aggregate.function:
        case "first" | "last":
            return column.take(result)
        case "sum":
            return _fit_sum(aggregate, column.type, result)
        case "mean" if _is_mean_of_integers(aggregate, column.type):
            return pc.divide(result.cast(pa.float64(), safe=False), next(results))
        case "mean":
            target = column.type if types.is_decimal(column.type) else pa.float64()
            return result if result.type == target else result.cast(target)
        case _:
            return result if result.type == column.type else result.cast(column.type)


def _is_mean_of_integers(aggregate: Aggregate, kind: pa.DataType) -> bool:
    is_whole = types.is_integer(kind) or types.is_boolean(kind) or types.is_duration(kind)
    return aggregate.function == "mean" and is_whole


def _canonical_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with one zero and one NaN; other types as they are."""
    import pyarrow.compute as pc

    if not types.is_floating(column.type):
        return column
    wide = column.cast(pa.float32()) if types.is_float16(column.type) else column
    nan = pa.scalar(float("nan"), wide.type)
    zeroed = pc.add(wide, pa.scalar(0.0, wide.type))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(zeroed), nan, zeroed).cast(column.type)


def _validity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Something small that is null where the column is, for types that cannot be counted."""
    import pyarrow.compute as pc

    if not types.is_nested(column.type):
        return column
    return pc.if_else(pc.is_valid(column), True, pa.scalar(None, pa.bool_()))


def _rows_with_value(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Row numbers, null where the column is null: their least leads to the first value."""
    import numpy as np
    import pyarrow.compute as pc

    rows = pa.array(np.arange(len(column), dtype=np.int64))
    return pc.if_else(column.is_valid().combine_chunks(), rows, pa.scalar(None, pa.int64()))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as a type that Acero finds the least and greatest of, in the same order."""
    kind = column.type
    if types.is_duration(kind):
        return column.cast(pa.int64())
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def _summable(column: pa.ChunkedArray, aggregate: Aggregate) -> pa.ChunkedArray:
    """The column as a type whose sum does not wrap around, whatever the values."""
    kind = column.type
    if types.is_duration(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    if types.is_boolean(kind):
        return column.cast(pa.int64())
    if not (types.is_integer(kind) or types.is_decimal(kind)):
        return _comparable(column)
    if _may_overflow(column):
        return column.cast(_wider(kind, aggregate))
    if types.is_unsigned_integer(kind) and not types.is_uint64(kind):
        return column.cast(pa.int64())
    return _comparable(column)


def _may_overflow(column: pa.ChunkedArray) -> bool:
    """Whether a sum of these numbers could leave Acero's type, from the count and the extremes."""
    import pyarrow.compute as pc

    if column.null_count == len(column):
        return False
    kind = column.type
    extremes = pc.min_max(_comparable(column)).as_py()
    if types.is_integer(kind):
        return bool(max(-extremes["min"], extremes["max"]) * len(column) >= 2**63)
    largest = max(extremes["min"].copy_abs(), extremes["max"].copy_abs())
    digits = 76 if types.is_decimal256(kind) else 38
    return int(largest.scaleb(kind.scale, _WIDE)) * len(column) >= 10**digits


def _wider(kind: pa.DataType, aggregate: Aggregate) -> pa.DataType:
    """A type for sums that ``kind`` has no room for."""
    if types.is_integer(kind):
        return pa.decimal128(38, 0)
    if not types.is_decimal256(kind):
        return pa.decimal256(76, kind.scale)
    raise _does_not_fit(aggregate)


def _fit_sum(aggregate: Aggregate, kind: pa.DataType, result: pa.ChunkedArray) -> pa.ChunkedArray:
    """A sum in its own type.

    int64 for integers (uint64 of uint64) and booleans, a duration of
    durations, a decimal of 38 digits of those that have no more.
    """
    if types.is_duration(kind):
        return _fit_sum(aggregate, pa.int64(), result).cast(kind)
    if types.is_boolean(kind) or types.is_integer(kind):
        target = pa.uint64() if types.is_uint64(kind) else pa.int64()
    elif types.is_decimal(kind) and not types.is_decimal256(kind):
        target = pa.decimal128(38, kind.scale)
    else:
        return result
    try:
        return result if result.type == target else result.cast(target)
    except pa.ArrowInvalid as error:
        raise _does_not_fit(aggregate) from error


def _does_not_fit(aggregate: Aggregate) -> JobError:
    return JobError(
        f"reduce.aggregate.{aggregate.name}: {aggregate.function} of {aggregate.column!r} does not "
        "fit its type; make a float, or a decimal of more digits, of the column in the map"
    )
