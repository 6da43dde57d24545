"""Partial aggregates: the state of a group after some of its rows, to which others can be added.

A partial row has the columns of the key and some partial columns: sums, counts, extremes, first and
last values, moments and digests. Every aggregate is finished from these. A row of the input is a
partial row as well, so combining is always optional: rows that have been combined and rows that
have not go together as long as they keep their order. All maps of a shuffle send the same columns.

Combining loses no value. Integers and decimals are combined only if the sum fits the partial
column, or in a wider column that is not sent (`PartialAggregates.combine_widening`). Sums, means
and variances of floats are rounded by the order in which they are added, as everywhere, and a
digest is a sketch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyarrow import types

from mrflight.compute import kernel
from mrflight.compute.singleton_groups import split_singleton_groups
from mrflight.compute.types import canonical_floats
from mrflight.config.aggregates import VARIANCES, Aggregate
from mrflight.errors import JobError
from mrflight.tasks.operators.exact_sums import (
    divide_decimals,
    fit_sum,
    is_whole,
    mean_of,
)
from mrflight.tasks.operators.grouping import Call, call_by_group
from mrflight.tasks.operators.partial_columns import (
    Part,
    PartialColumn,
    decompose,
    ones,
    partial_columns,
)


@dataclass(frozen=True)
class PartialAggregates:
    """A plan that splits the aggregates of a job into partial columns and finishes them.

    `plan_partials` makes it.
    """

    group_by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    schema: pa.Schema
    """The schema of partial rows: the keys, then `columns`."""
    means: tuple[pa.DataType | None, ...]
    """The type of each aggregate that is a mean of decimals; None for the others."""

    @cached_property
    def columns(self) -> tuple[PartialColumn, ...]:
        return partial_columns(self.group_by, self.aggregates)

    def from_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return each row as a partial row. Columns that need no conversion are not copied.

        The batch has the canonical schema that this was planned for, or a part of its columns.
        """
        computed = {
            partial.name: partial.from_single_rows(batch, self.schema.field(partial.name).type)
            for partial in self.columns
        }
        return self._partial_rows(batch, computed)

    def from_distinct(self, batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
        """Return distinct pairs of key and ``column`` as partial rows with a count of 1 or 0."""
        part = Part("count_distinct", column)
        return self.from_results(batch, {part: ones(batch[column], pa.int64())})

    def from_results(
        self, batch: pa.RecordBatch, results: Mapping[Part, pa.Array]
    ) -> pa.RecordBatch:
        """Return keys as partial rows with these parts, which have been computed from all rows.

        The batch has the columns of the key, or what their types are stored as. A part must come
        with one row of each key only, unless it is a count.
        """
        computed = {
            partial.name: results[partial.part]
            for partial in self.columns
            if partial.part in results
        }
        return self._partial_rows(batch, computed)

    def _partial_rows(
        self, batch: pa.RecordBatch, computed: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        """Return the keys and the given partial columns. The other columns are 0 or null."""
        columns = [_cast(batch[name], self.schema.field(name).type) for name in self.group_by]
        for partial in self.columns:
            if partial.name in computed:
                columns.append(computed[partial.name])
                continue
            columns.append(partial.nothing(batch.num_rows, self.schema.field(partial.name).type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def combine(self, rows: pa.Table) -> pa.Table | None:
        """Return one partial row per key in the same schema; None if a sum does not fit it.

        Groups come in the order of their first rows.
        """
        try:
            combined = self._combine(rows, fits=True)
            is_same = combined.schema.equals(self.schema, check_metadata=True)
            return combined if is_same else combined.cast(self.schema)
        except (JobError, pa.ArrowInvalid):
            return None

    def running_sums(self) -> kernel.RunningSums | None:
        """Return sums that combine partial rows as `combine` does; None if the kernel cannot."""
        if len(self.group_by) != 1 or any(each.combining != "sum" for each in self.columns):
            return None
        return kernel.running_sums(self.schema)

    def combine_widening(self, rows: pa.Table) -> pa.Table:
        """Return one partial row per key, in columns as wide as the sums may need.

        ``rows`` may be results of this method. Raises JobError for sums of more than 76 digits.
        """
        return self._combine(rows, fits=False)

    def finish(self, rows: pa.Table) -> pa.Table:
        """Return the result: one row per key, as `grouping.group` returns it for all rows.

        ``rows`` are partial rows, combined or not, in input order. Raises JobError for a sum that
        does not fit its type.
        """
        singletons, others = split_singleton_groups(rows, self.group_by)
        results = [self._finish_combined(self._as_combined(singletons))] if len(singletons) else []
        if len(others) or not results:
            results.append(self._finish_combined(self._combine(others, fits=False)))
        return pa.concat_tables(results)

    def _as_combined(self, singletons: pa.Table) -> pa.Table:
        """Return partial rows with distinct keys as `_combine` would return them."""
        columns = [canonical_floats(singletons[name]) for name in self.group_by]
        for partial in self.columns:
            column = singletons[partial.name]
            is_summed = partial.combining == "sum" and is_whole(column.type)
            is_signed = is_summed and not types.is_uint64(column.type)
            columns.append(_cast(column, pa.int64()) if is_signed else column)
        return pa.table(columns, names=[*self.group_by, *(each.name for each in self.columns)])

    def _finish_combined(self, combined: pa.Table) -> pa.Table:
        """Return the aggregates of combined rows, which have distinct keys."""
        names = {partial.part: partial.name for partial in self.columns}
        outputs = [combined[name] for name in self.group_by]
        for aggregate, mean in zip(self.aggregates, self.means, strict=True):
            parts = [combined[names[part]] for part in decompose(aggregate)]
            kinds = [self.schema.field(names[part]).type for part in decompose(aggregate)]
            outputs.append(_finish(aggregate, mean, parts, kinds))
        return pa.table(outputs, names=[*self.group_by, *(each.name for each in self.aggregates)])

    def _combine(self, rows: pa.Table, fits: bool) -> pa.Table:
        calls = [
            Call(partial.name, partial.combining, partial.name, partial.aggregate, fits)
            for partial in self.columns
        ]
        return call_by_group(rows, self.group_by, calls)


def plan_partials(
    schema: pa.Schema, group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> PartialAggregates | None:
    """Return a plan for rows of a plain schema; None if an aggregate cannot be combined exactly.

    Those are count_distinct, exact quantiles, and means of decimals, which are rounded in their own
    type. The columns have passed `check_aggregates`.
    """
    for aggregate in aggregates:
        if aggregate.needs_all_rows:
            return None
        if aggregate.function == "mean" and types.is_decimal(_type(schema, aggregate)):
            return None
    return plan_all_partials(schema, group_by, aggregates)


def plan_all_partials(
    schema: pa.Schema, group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> PartialAggregates:
    """Return a plan for any aggregates, whose partial rows must stay in one process.

    A count_distinct adds up counts of values that are known to be distinct
    (`PartialAggregates.from_distinct`). Quantiles are computed before
    (`PartialAggregates.from_results`). A mean of decimals is divided exactly at the end.
    """
    fields = [pa.field(name, schema.field(name).type) for name in group_by]
    fields += [
        pa.field(partial.name, partial.type_in(schema))
        for partial in partial_columns(group_by, aggregates)
    ]
    means = tuple(
        _type(schema, each)
        if each.function == "mean" and types.is_decimal(_type(schema, each))
        else None
        for each in aggregates
    )
    return PartialAggregates(tuple(group_by), tuple(aggregates), pa.schema(fields), means)


def infer_partials(
    schema: pa.Schema, group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> PartialAggregates | None:
    """Return the plan of partial rows with this schema; None if it is not one of partial rows.

    Rows that were sent without a plan are never mistaken for partial rows: the name of a partial
    column is longer than the name of the column that it aggregates.
    """
    names = [*group_by, *(partial.name for partial in partial_columns(group_by, aggregates))]
    if schema.names != names:
        return None
    return PartialAggregates(tuple(group_by), tuple(aggregates), schema, (None,) * len(aggregates))


def concat_partial_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate partial rows of one plan. Each sum gets the widest of its types."""
    schema = tables[0].schema
    if all(table.schema == schema for table in tables):
        return pa.concat_tables(tables)
    kinds = [
        max({table.schema.field(name).type for table in tables}, key=_width_rank)
        for name in schema.names
    ]
    widest = pa.schema(list(zip(schema.names, kinds, strict=True)))
    return pa.concat_tables([_widen(table, widest) for table in tables])


def _widen(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for column, kind in zip(table.columns, schema.types, strict=True):
        if types.is_duration(column.type) and column.type != kind:
            column = column.cast(pa.int64())  # there is no cast from a duration to a decimal
        columns.append(column if column.type == kind else column.cast(kind))
    return pa.table(columns, schema=schema)


def _width_rank(kind: pa.DataType) -> int:
    """Return the rank of a type for sums: duration and int32 first, then int64, then decimals."""
    if types.is_decimal(kind):
        return kind.bit_width
    return 64 if types.is_int64(kind) else 0


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _type(schema: pa.Schema, aggregate: Aggregate) -> pa.DataType:
    return pa.null() if aggregate.column is None else schema.field(aggregate.column).type


def _finish(
    aggregate: Aggregate,
    mean: pa.DataType | None,
    parts: Sequence[pa.ChunkedArray],
    kinds: Sequence[pa.DataType],
) -> pa.ChunkedArray:
    """Finish an aggregate from its combined parts, whose types on the wire are ``kinds``."""
    match aggregate.function:
        case "sum":
            return fit_sum(aggregate, kinds[0], parts[0])
        case "mean" if mean is not None:
            return divide_decimals(parts[0], parts[1], mean)
        case "mean":
            return mean_of(kinds[0], parts[0], parts[1])
        case "approx_median" | "approx_quantile":
            from mrflight.compute.t_digest import estimate_quantiles

            return pa.chunked_array([estimate_quantiles(parts[0], kinds[1], aggregate.fraction)])
        case function if function in VARIANCES:
            from mrflight.tasks.operators.grouped_statistics import finish_moments

            return finish_moments(aggregate, parts[0])
        case _:
            return parts[0]
