"""Groups and aggregates the rows of one partition, with Acero.

What Acero does not do by itself is done here, so that the result is that of
SQL for every type: -0.0 and 0.0 are one key and so are all NaNs (as in the
hash that brought them together), integer sums never wrap around, and first
and last take every type.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from mrflight.aggregates import Aggregate
from mrflight.errors import JobError


def group(table: pa.Table, group_by: Sequence[str], aggregates: Sequence[Aggregate]) -> pa.Table:
    """One row per distinct key, null a key like others: the keys, then the aggregates in order.

    Keys come in order of their first rows. The table's columns are plain (no
    dictionaries or views), as they come from a shuffle. Raises JobError for
    an integer sum that does not fit its type.
    """
    import pyarrow.compute as pc

    keys = [f"key{i}" for i in range(len(group_by))]
    columns = {
        name: _canonical_floats(table[column]) for name, column in zip(keys, group_by, strict=True)
    }
    calls: list[tuple[str | list[str], str, pc.FunctionOptions | None]] = []
    for i, aggregate in enumerate(aggregates):
        column, function = _prepare(table, aggregate)
        if column is None:
            calls.append(([], "count_all", None))
        else:
            columns[f"value{i}"] = column
            options = pc.CountOptions(mode="only_valid") if "count" in function else None
            calls.append((f"value{i}", function, options))
    grouped = pa.table(columns).group_by(keys, use_threads=False).aggregate(calls)
    outputs = grouped.columns[: len(keys)]
    for i, aggregate in enumerate(aggregates):
        outputs.append(_finish(table, aggregate, grouped.column(len(keys) + i)))
    return pa.table(outputs, names=[*group_by, *(aggregate.name for aggregate in aggregates)])


def _prepare(table: pa.Table, aggregate: Aggregate) -> tuple[pa.ChunkedArray | None, str]:
    """The column that Acero is given for this aggregate, and the function it is asked for."""
    if aggregate.column is None:
        return None, "count_all"
    column = table[aggregate.column]
    match aggregate.function:
        case "first":
            return _rows_with_value(column), "min"
        case "last":
            return _rows_with_value(column), "max"
        case "count_distinct":
            return _canonical_floats(column), "count_distinct"
        case "count":
            return _validity(column), "count"
        case "sum":
            return _summable(column), "sum"
        case "mean":
            return _summable(column, _may_overflow(column)), "mean"
        case _:
            return _comparable(column), aggregate.function


def _finish(table: pa.Table, aggregate: Aggregate, result: pa.ChunkedArray) -> pa.ChunkedArray:
    """Acero's result as the aggregate promises it."""
    if aggregate.column is None or aggregate.function in ("count", "count_distinct", "mean"):
        return result
    column = table[aggregate.column]
    match aggregate.function:
        case "first" | "last":
            return column.take(result)
        case "sum":
            return _fit_sum(aggregate, column.type, result)
        case _:
            return result if result.type == column.type else result.cast(column.type)


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


def _summable(column: pa.ChunkedArray, as_double: bool = False) -> pa.ChunkedArray:
    """The column as a type whose sum does not wrap around, whatever the values."""
    kind = column.type
    if types.is_duration(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    if types.is_integer(kind):
        if as_double:
            return column.cast(pa.float64(), safe=False)
        if _may_overflow(column):
            return column.cast(pa.decimal128(38, 0))
        return column if types.is_signed_integer(kind) or types.is_uint64(kind) else _signed(column)
    return _signed(column) if types.is_boolean(kind) else _comparable(column)


def _signed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64())


def _may_overflow(column: pa.ChunkedArray) -> bool:
    """Whether a sum of these integers could leave 64 bits, from the count and the extremes."""
    import pyarrow.compute as pc

    if types.is_duration(column.type):
        column = column.cast(pa.int64())
    if not types.is_integer(column.type) or column.null_count == len(column):
        return False
    extremes = pc.min_max(column).as_py()
    return max(abs(extremes["min"]), abs(extremes["max"])) * len(column) >= 2**63


def _fit_sum(aggregate: Aggregate, kind: pa.DataType, result: pa.ChunkedArray) -> pa.ChunkedArray:
    """A sum as its own type: int64 for integers (uint64 of uint64), a duration of a duration."""
    if types.is_duration(kind):
        target = kind
        result = result if types.is_integer(result.type) else _to_integer(aggregate, result)
    elif types.is_boolean(kind) or types.is_integer(kind):
        target = pa.uint64() if types.is_uint64(kind) else pa.int64()
    else:
        return result
    return result if result.type == target else _to_integer(aggregate, result, target)


def _to_integer(
    aggregate: Aggregate, result: pa.ChunkedArray, target: pa.DataType | None = None
) -> pa.ChunkedArray:
    try:
        return result.cast(target or pa.int64())
    except pa.ArrowInvalid as error:
        raise JobError(
            f"reduce.aggregate.{aggregate.name}: sum of {aggregate.column!r} does not fit 64 bits; "
            "make a decimal or a float of the column in the map"
        ) from error
