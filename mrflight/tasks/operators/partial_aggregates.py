"""Partial aggregates: what some of a group's rows come to, so that the rest can be added later.

A partial row has the columns of the key and some partial columns, sums,
counts, extremes, first and last values, from which every aggregate is
finished. A row of the input is a partial row of its own, so that merging is
always optional: rows that have been merged and rows that have not go together
as long as they keep their order. All maps of a shuffle send the same columns.

Nothing is lost: integers and decimals are only merged where the sum fits the
partial column, or else in a wider one (`PartialAggregates.merge_widening`, where the
result does not travel). Sums and means of floats depend on the order in which
they are added, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyarrow import types

from mrflight.compute.types import canonical_floats
from mrflight.tasks.operators.aggregates import Aggregate
from mrflight.tasks.operators.grouping import (
    Call,
    call_by_group,
    divide_decimals,
    fit_sum,
    is_whole,
    may_overflow,
    mean_of,
)
from mrflight.tasks.operators.partial_columns import PartialColumn, columns_of, ones, parts_of
from mrflight.tasks.operators.singleton_groups import split_singleton_groups

MAX_COUNT = 2**31 - 1
"""Of the counts on the wire."""


@dataclass(frozen=True)
class PartialAggregates:
    """How the aggregates of a job are taken apart and put together; made by `plan_partials`."""

    group_by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    schema: pa.Schema
    """Of partial rows: the keys, then `columns`."""
    means: tuple[pa.DataType | None, ...]
    """By aggregate, the type of a mean of decimals."""

    @cached_property
    def columns(self) -> tuple[PartialColumn, ...]:
        return columns_of(self.group_by, self.aggregates)

    def from_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Each row as a partial row. Columns that need no conversion are not copied.

        The batch is plain, of the schema that this was planned for, or a projection of it.
        """
        made = {
            partial.name: partial.of_single_rows(batch, self.schema.field(partial.name).type)
            for partial in self.columns
        }
        return self._partial_rows(batch, made)

    def from_distinct(self, batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
        """Distinct pairs of key and ``column`` as partial rows that count one, or none for null."""
        counted = {
            partial.name: ones(batch[column], self.schema.field(partial.name).type)
            for partial in self.columns
            if partial.function == "count_distinct" and partial.column == column
        }
        return self._partial_rows(batch, counted)

    def _partial_rows(self, batch: pa.RecordBatch, made: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The keys and some partial columns; the others add nothing."""
        columns = [batch[name] for name in self.group_by]
        for partial in self.columns:
            if partial.name in made:
                columns.append(made[partial.name])
                continue
            kind = self.schema.field(partial.name).type
            nothing = pa.scalar(0 if partial.is_count else None, kind)
            columns.append(pa.repeat(nothing, batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def merge(self, rows: pa.Table) -> pa.Table | None:
        """One partial row per key, of the same schema; None where a sum might not fit it.

        Groups come in the order of their first rows.
        """
        if any(self._does_not_fit(rows, partial) for partial in self.columns):
            return None
        return self._merge(rows, fits=True).cast(self.schema)

    def merge_widening(self, rows: pa.Table) -> pa.Table:
        """As `merge`, with columns as wide as the sums may need.

        ``rows`` may have come of this before. Raises JobError for sums of more
        than 76 digits.
        """
        return self._merge(rows, fits=False)

    def finish(self, rows: pa.Table) -> pa.Table:
        """The result: one row per key, as `grouping.group` makes it of all rows.

        ``rows`` are partial rows of all kinds, in input order. Raises JobError for a sum that
        does not fit its type.
        """
        lone, others = split_singleton_groups(rows, self.group_by)
        results = [self._finish_merged(self._as_merged(lone))] if len(lone) else []
        if len(others) or not results:
            results.append(self._finish_merged(self._merge(others, fits=False)))
        return pa.concat_tables(results)

    def _as_merged(self, lone: pa.Table) -> pa.Table:
        """Partial rows whose key comes once, as `_merge` gives them."""
        columns = [canonical_floats(lone[name]) for name in self.group_by]
        for partial in self.columns:
            column = lone[partial.name]
            is_summed = partial.merging == "sum" and is_whole(column.type)
            is_signed = is_summed and not types.is_uint64(column.type)
            columns.append(column.cast(pa.int64()) if is_signed else column)
        return pa.table(columns, names=[*self.group_by, *(each.name for each in self.columns)])

    def _finish_merged(self, merged: pa.Table) -> pa.Table:
        """The aggregates of rows that have a key each."""
        names = {(partial.function, partial.column): partial.name for partial in self.columns}
        outputs = [merged[name] for name in self.group_by]
        for aggregate, mean in zip(self.aggregates, self.means, strict=True):
            parts = [merged[names[part]] for part in parts_of(aggregate)]
            kinds = [self.schema.field(names[part]).type for part in parts_of(aggregate)]
            outputs.append(_finish(aggregate, mean, parts, kinds))
        return pa.table(outputs, names=[*self.group_by, *(each.name for each in self.aggregates)])

    def _merge(self, rows: pa.Table, fits: bool) -> pa.Table:
        calls = [
            Call(partial.name, partial.merging, partial.name, partial.asked, fits)
            for partial in self.columns
        ]
        return call_by_group(rows, self.group_by, calls)

    def _does_not_fit(self, rows: pa.Table, partial: PartialColumn) -> bool:
        if partial.merging != "sum":
            return False
        column = rows[partial.name]
        if types.is_int32(column.type):
            import pyarrow.compute as pc

            return bool((pc.max(column).as_py() or 0) * len(column) > MAX_COUNT)
        if types.is_duration(column.type):
            column = column.cast(pa.int64())
        return not types.is_floating(column.type) and may_overflow(column)


def plan_partials(
    schema: pa.Schema, group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> PartialAggregates | None:
    """How rows of a plain schema are combined; None where an aggregate cannot be, or not exactly.

    Those are count_distinct, and means of decimals, which are rounded in their own type. The
    columns are there and of types that `check_aggregates` lets through.
    """
    for aggregate in aggregates:
        if aggregate.function == "count_distinct":
            return None
        if aggregate.function == "mean" and types.is_decimal(_type(schema, aggregate)):
            return None
    return plan_all_partials(schema, group_by, aggregates)


def plan_all_partials(
    schema: pa.Schema, group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> PartialAggregates:
    """As `plan_partials`, for every aggregate, where partial rows stay in one process.

    A count_distinct adds up counts of values that are known to be distinct
    (`PartialAggregates.from_distinct`). A mean of decimals is divided exactly at the end.
    """
    fields = [pa.field(name, schema.field(name).type) for name in group_by]
    fields += [
        pa.field(partial.name, partial.type_in(schema))
        for partial in columns_of(group_by, aggregates)
    ]
    means = tuple(
        _type(schema, each)
        if each.function == "mean" and types.is_decimal(_type(schema, each))
        else None
        for each in aggregates
    )
    return PartialAggregates(tuple(group_by), tuple(aggregates), pa.schema(fields), means)


def partials_of(
    schema: pa.Schema, group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> PartialAggregates | None:
    """What partial rows of ``schema`` were planned with; None where it is of no partial rows.

    Needed columns alone are never taken for partial rows: a partial column's
    name is longer than that of every column that is aggregated.
    """
    names = [*group_by, *(partial.name for partial in columns_of(group_by, aggregates))]
    if schema.names != names:
        return None
    return PartialAggregates(tuple(group_by), tuple(aggregates), schema, (None,) * len(aggregates))


def concat_partial_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Partial rows of one plan one after the other, each sum as wide as the widest of them."""
    schema = tables[0].schema
    if all(table.schema == schema for table in tables):
        return pa.concat_tables(tables)
    kinds = [
        max({table.schema.field(name).type for table in tables}, key=_room) for name in schema.names
    ]
    widest = pa.schema(list(zip(schema.names, kinds, strict=True)))
    return pa.concat_tables([_widened(table, widest) for table in tables])


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for column, kind in zip(table.columns, schema.types, strict=True):
        if types.is_duration(column.type) and column.type != kind:
            column = column.cast(pa.int64())  # there is no cast from a duration to a decimal
        columns.append(column if column.type == kind else column.cast(kind))
    return pa.table(columns, schema=schema)


def _room(kind: pa.DataType) -> int:
    """Orders the types that one sum may have: a duration or int32, int64, then decimals."""
    if types.is_decimal(kind):
        return kind.bit_width
    return 64 if types.is_int64(kind) else 0


def _type(schema: pa.Schema, aggregate: Aggregate) -> pa.DataType:
    return pa.null() if aggregate.column is None else schema.field(aggregate.column).type


def _finish(
    aggregate: Aggregate,
    mean: pa.DataType | None,
    parts: Sequence[pa.ChunkedArray],
    kinds: Sequence[pa.DataType],
) -> pa.ChunkedArray:
    """An aggregate from its merged parts, whose types on the wire are ``kinds``."""
    match aggregate.function:
        case "sum":
            return fit_sum(aggregate, kinds[0], parts[0])
        case "mean" if mean is not None:
            return divide_decimals(parts[0], parts[1], mean)
        case "mean":
            return mean_of(kinds[0], parts[0], parts[1])
        case _:
            return parts[0]
