"""Groups and aggregates the rows of one partition with Acero.

This module adds what Acero lacks, so that the result is the result of SQL for every type: -0.0 and
0.0 are the same key, and so are all NaNs (as in the hash that partitioned them), integer sums never
wrap around, and first and last accept every type. If there are variances or quantiles, groups are
numbered before, and Acero groups by their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc
from mrflight.compute.arrays import to_arrow
from mrflight.compute.types import canonical_floats, comparable
from mrflight.config.aggregates import Aggregate
from mrflight.tasks.operators.exact_sums import fit_sum, is_whole, mean_of, summable
from mrflight.tasks.operators.partial_columns import STATISTICS, PartFunction
from mrflight.tasks.operators.summed_groups import group_sums

if TYPE_CHECKING:
    from mrflight.tasks.operators.grouped_statistics import GroupedStatistics


class Call(NamedTuple):
    """One output column, ``name = function(column)``; errors name the aggregate ``aggregate``."""

    name: str
    function: PartFunction
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
    """Group as `group` does, with one column for each call.

    Groups come in the order of their first rows.
    """
    keys = [groupable(table[name]) for name in group_by]
    plain = [call for call in calls if call.function not in STATISTICS]
    statistics = _statistics(table, group_by) if len(plain) < len(calls) else None
    if statistics is None:
        keys, results = _run(table, keys, plain)
    else:
        keys = [key.take(statistics.first_rows) for key in keys]
        _, results = (
            _run(table, [pa.chunked_array([statistics.numbers])], plain) if plain else ([], [])
        )
    outputs = [
        key if key.type == table[name].type else key.cast(table[name].type)
        for name, key in zip(group_by, keys, strict=False)
    ]
    found = iter(results)
    for call in calls:
        if call.function in STATISTICS:
            assert statistics is not None
            assert call.column is not None
            outputs.append(statistics.of(call.function, call.column, call.aggregate))
        else:
            outputs.append(_finish(table, call, found))
    return pa.table(outputs, names=[*group_by, *(call.name for call in calls)])


def _statistics(table: pa.Table, group_by: Sequence[str]) -> GroupedStatistics:
    from mrflight.tasks.operators.grouped_statistics import GroupedStatistics

    return GroupedStatistics(table, group_by)


def _run(
    table: pa.Table, keys: Sequence[pa.ChunkedArray], calls: Sequence[Call]
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    """Return the distinct keys, and the results of the functions that run for each call."""
    keys = keys or [pa.chunked_array([pa.repeat(pa.scalar(0, pa.int8()), len(table))])]
    sums = [(call.column and table[call.column], call.function) for call in calls]
    return group_sums(keys, sums) or _call_acero(table, keys, calls)


def _call_acero(
    table: pa.Table, keys: Sequence[pa.ChunkedArray], calls: Sequence[Call]
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    columns = {f"key{i}": key for i, key in enumerate(keys)}
    names = list(columns)
    requests: list[tuple[str | list[str], str]] = []
    for i, call in enumerate(calls):
        column, functions = _prepare(table, call)
        if column is not None:
            columns[f"value{i}"] = column
        requests += [([] if column is None else f"value{i}", function) for function in functions]
    grouped = pa.table(columns).group_by(names, use_threads=False).aggregate(requests)
    return grouped.columns[: len(keys)], grouped.columns[len(keys) :]


def groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a key column as a type that Acero can group by, with equal values for equal keys."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    return canonical_floats(column)


def _prepare(table: pa.Table, call: Call) -> tuple[pa.ChunkedArray | None, list[str]]:
    """Return the column that Acero is given for this call, and the functions that it runs."""
    if call.column is None:
        return None, ["count_all"]
    if call.function in STATISTICS:
        return None, []
    column = table[call.column]
    match call.function:
        case "bool_and" | "bool_or":
            return column, ["min" if call.function == "bool_and" else "max"]
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
            return summable(column, call.aggregate), ["sum", "count"]
        case "sum" | "mean":
            return summable(column, call.aggregate), [call.function]
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


def _validity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column, or a small one with the same nulls if Acero cannot count the type."""
    if not types.is_nested(column.type):
        return column
    return pc.if_else(pc.is_valid(column), True, pa.scalar(None, pa.bool_()))


def _rows_with_value(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return row numbers, with null for each row that is null in the column.

    The minimum of these numbers is the row of the first value.
    """
    rows = _row_numbers(column)
    return pc.if_else(column.is_valid().combine_chunks(), rows, pa.scalar(None, pa.int64()))


def _row_numbers(rows: pa.Table | pa.ChunkedArray) -> pa.Array:
    import numpy as np

    return to_arrow(np.arange(len(rows), dtype=np.int64))
