"""Reduces the rows of one partition to its result, within the memory of its task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.compute.schemas import empty_table
from mrflight.compute.sorting import check_sortable
from mrflight.config.aggregates import Aggregate
from mrflight.config.functions import FunctionRef
from mrflight.config.sort_key import SortKey
from mrflight.system.scratch import ScratchFolder
from mrflight.system.shared_payload import SharedPayload
from mrflight.tasks.operators.aggregates import MAPPED_ROW, check_aggregates, check_distinct
from mrflight.tasks.operators.combiner import MapCombiner, combine_groups
from mrflight.tasks.operators.grouped_aggregation import CompleteAggregation, PartialAggregation
from mrflight.tasks.operators.grouping import group, group_without_rows
from mrflight.tasks.operators.partial_aggregates import (
    PartialAggregates,
    infer_partials,
    plan_partials,
)
from mrflight.tasks.reduce_function import ReduceFunction
from mrflight.tasks.task_memory import TaskMemory

if TYPE_CHECKING:  # each is loaded by the jobs that need it
    from mrflight.tasks.operators.first_last_by_key import FirstLastByKey
    from mrflight.tasks.operators.merge_dedup import MergeDedup

_RESULT = "a row of the result"


class ReduceSpec(SharedPayload, msgspec.Struct, frozen=True):
    """Specifies what a partition is reduced to: groups, a function's table, some rows, or all rows.

    At most one of these is set. `sort_by` and `limit` apply to its result.
    """

    group_by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    """The aggregates of each group. Without ``group_by`` there is one group, even without rows."""
    function: FunctionRef | None = None
    distinct: bool = False
    """True if equal rows become one, which groups by all columns, whatever these are."""
    kept: FirstLastByKey | None = None
    """Set if one row of each key is kept; says which one."""
    sort_by: tuple[SortKey, ...] = ()
    """The order of the rows or groups; set if partitions are ranges of it."""
    limit: int | None = None
    """The number of rows to keep: the first by ``sort_by``, or the first that arrive."""
    key: tuple[str, ...] = ()
    """The key of the partition, for a function: a partition that is too large is split between
    keys. It is set if all inputs are partitioned by the hash of the same columns."""
    unique: MergeDedup | None = None
    """Set for output mode merge, which keeps one row of each key of the result."""
    combines: bool = False
    """True if maps send the output of `combiner` in place of their rows. This requires a
    partitioner that uses only columns of the group."""

    def check(self, schema: pa.Schema, rows: str = MAPPED_ROW) -> None:
        """Raise if rows of this schema cannot be reduced like this. Messages call them ``rows``."""
        plain = canonical_schema(schema)
        if self.distinct:
            check_distinct(plain, rows)
        check_aggregates(plain, self.group_by, self.aggregates, rows)
        if self.kept is not None:
            self.kept.check(plain, rows)
        if self.sort_by and (result := self.result_schema(plain)) is not None:
            check_sortable(result, self.sort_by, f"reduce.sort_by: {_RESULT}")
        if self.unique is not None and self.groups:
            self.unique.check_names(
                [*self.group_by, *(each.name for each in self.aggregates)], "the result"
            )
        elif self.unique is not None and not self.function:
            self.unique.check(plain, rows)

    def result_schema(self, schema: pa.Schema) -> pa.Schema | None:
        """Return the schema of the result for these rows; None if a function decides it."""
        plain = canonical_schema(schema)
        if self.function:
            return None
        if self.groups:
            return group(empty_table(plain), self.group_by, self.aggregates).schema
        return plain

    def applied_schema(self, shuffled: pa.Schema) -> pa.Schema | None:
        """Return the schema of the result of `apply`; None if a function decides it."""
        if (partials := self.partials(shuffled)) is not None:
            return partials.finish(empty_table(partials.schema)).schema
        return self.result_schema(shuffled)

    def combiner(self, memory_bytes: int) -> MapCombiner | None:
        """Return a combiner for one map task's rows; None if they are sent unchanged."""
        if self.limit is not None and self._takes_rows:
            from mrflight.tasks.operators.top_k import TopK

            return TopK(self.limit, self.sort_by).combiner(memory_bytes)
        if not self.combines:
            return None
        if self.kept is not None:
            return self.kept.combiner(memory_bytes)
        if not self.groups and not self.distinct:
            return None
        return partial(
            combine_groups,
            group_by=None if self.distinct else self.group_by,
            aggregates=self.aggregates,
            memory_bytes=memory_bytes,
        )

    def resolve_distinct(self, schema: pa.Schema) -> ReduceSpec:
        """Return the spec for rows of this schema, with ``distinct`` as a group by all columns."""
        if not self.distinct:
            return self
        return replace(self, group_by=tuple(schema.names), distinct=False)

    @property
    def groups(self) -> bool:
        """True if the result is groups, or one row for all rows."""
        return bool(self.group_by or self.aggregates)

    @property
    def keeps_rows(self) -> bool:
        """True if the result is the unchanged rows."""
        return self._takes_rows and not self.sort_by and self.limit is None

    @property
    def sorts_rows(self) -> bool:
        """True if the result is the unchanged rows in another order."""
        return self._takes_rows and bool(self.sort_by) and self.limit is None

    @property
    def _takes_rows(self) -> bool:
        """True if the result has unchanged rows, perhaps sorted or limited."""
        changes = self.groups or self.function or self.distinct or self.kept or self.unique
        return not changes

    def partials(self, schema: pa.Schema) -> PartialAggregates | None:
        """Return how shuffled rows of this schema are combined; None for plain rows."""
        group_by = tuple(schema.names) if self.distinct else self.group_by
        return infer_partials(schema, group_by, self.aggregates) if self.combines else None

    def apply(
        self,
        partition: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        task_memory: TaskMemory,
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema of the result, and its batches, which are made as they are read.

        ``schema`` is the schema of the shuffle. A function is called once before this returns; all
        other work is done as the batches are read. Local files are removed when the batches end or
        are closed. The batches may raise JobError, and JobFailedError if files cannot be written.
        """
        if self.keeps_rows:
            return schema, batches
        results = self.resolve_distinct(schema)._results(partition, schema, batches, task_memory)
        first = next(results)
        return first.schema, _to_batches(chain([first], results))

    def _results(
        self,
        partition: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        task_memory: TaskMemory,
    ) -> Iterator[pa.Table]:
        """Yield the result in tables, at least one."""
        reduces = self.groups or self.function or self.kept
        stages = [reduces, self._has_duplicates, self.sort_by]
        rows_bytes = task_memory.rows_bytes // max(1, sum(map(bool, stages)))
        with ScratchFolder("reduce", task_memory.folder) as scratch:
            if self.groups:
                tables = self._groups(schema, batches, rows_bytes, scratch)
            elif self.function:
                function = ReduceFunction(self.function, self.key)
                tables = function.results(partition, schema, batches, rows_bytes, scratch)
            elif self.kept is not None:
                tables = self.kept.results(batches, rows_bytes, scratch)
                tables = _at_least_one(tables, partial(empty_table, schema))
            else:
                tables = (pa.Table.from_batches([batch]) for batch in batches)
            if self.unique is not None:
                tables = self._unique(partition, schema, tables, rows_bytes, scratch)
            if self.sort_by or self.limit is not None:
                tables = self._sort(schema, tables, rows_bytes, scratch)
            yield from tables

    @property
    def _has_duplicates(self) -> bool:
        """True if several rows of the result may have the same key, and only one may be kept."""
        if self.unique is None:
            return False
        return not self.groups or not set(self.group_by) <= set(self.unique.keys)

    def _unique(
        self,
        partition: int,
        schema: pa.Schema,
        tables: Iterator[pa.Table],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> Iterator[pa.Table]:
        assert self.unique is not None
        tables = _at_least_one(tables, partial(empty_table, schema))
        if self._has_duplicates:
            yield from self.unique.results(partition, tables, rows_bytes, scratch)
            return
        from mrflight.compute.deduplication import check_no_nulls

        for table in tables:
            check_no_nulls(table, self.unique.keys)
            yield table

    def _groups(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> Iterator[pa.Table]:
        spec = (self.group_by, self.aggregates)
        plan = self.partials(schema)
        if plan is None and (plan := plan_partials(schema, *spec)):
            batches = map(plan.from_rows, batches)
        empty: Callable[[], pa.Table]
        if plan is not None:
            tables = PartialAggregation(plan, rows_bytes, scratch).results(batches)
            empty = partial(plan.finish, empty_table(plan.schema))
        else:
            tables = CompleteAggregation(schema, *spec, rows_bytes, scratch).results(batches)
            empty = partial(group, empty_table(schema), *spec)
        if not self.group_by:
            return _at_least_one(
                tables, lambda: group_without_rows(empty().schema, self.aggregates)
            )
        return _at_least_one(tables, empty)

    def _sort(
        self,
        schema: pa.Schema,
        tables: Iterator[pa.Table],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> Iterator[pa.Table]:
        first = next(tables, empty_table(schema))
        check_sortable(first.schema, self.sort_by, f"reduce.sort_by: {_RESULT}")
        rows = (batch for table in chain([first], tables) for batch in table.to_batches())
        if self.limit is not None:
            from mrflight.tasks.operators.top_k import TopK

            results = TopK(self.limit, self.sort_by).results(rows, rows_bytes, scratch)
        else:
            from mrflight.tasks.operators.external_sort import ExternalSort

            results = ExternalSort(self.sort_by, rows_bytes, scratch).results(rows)
        return _at_least_one(results, partial(empty_table, first.schema))


def _at_least_one(tables: Iterator[pa.Table], empty: Callable[[], pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables, or an empty one if there are none."""
    first = next(tables, None)
    yield empty() if first is None else first
    yield from tables


def _to_batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()
