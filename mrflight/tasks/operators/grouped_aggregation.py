"""Groups a stream of rows of any size in bounded memory.

Rows are gathered up to a part of the memory and combined to partial rows. If there are few keys,
the partial rows stay small, and this continues to the end. Otherwise all rows are spilled to local
files, in partitions by the hash of the key. Each partition is grouped by itself, and partitioned
again if it is still too large.

Rows that fit are grouped at once. Partitioning them in memory first, so that the hash tables stay
in the CPU caches, was slower in all cases but one: with 1.5 million rows and more, and distinct
keys of 18 bytes, it saved a quarter of the time. With few keys it took three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from mrflight.config.aggregates import Aggregate
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.operators.partial_aggregates import (
    PartialAggregates,
    concat_partial_rows,
    plan_all_partials,
)
from mrflight.tasks.operators.spill_partitions import (
    MAX_LEVEL,
    RowBuffer,
    SpillPartition,
    hash_partitioner,
    spill,
)

_MAX_HELD_FRACTION = 0.5
"""Combined rows continue to be held if they take at most this fraction of the rows' memory."""

_MAX_COMBINED_FRACTION = 0.7
"""Rows are combined before they are spilled if that leaves at most this fraction of them."""


class AggregationPlan(Protocol):
    """A plan that can combine the rows of a key any number of times."""

    @property
    def group_by(self) -> tuple[str, ...]:
        """The columns of the key."""

    def combine_widening(self, rows: pa.Table) -> pa.Table:
        """Return one row per key, which may be combined with others again."""

    def finish(self, rows: pa.Table) -> pa.Table:
        """Return the result for all rows of some keys, whether they were combined or not."""


class PartialAggregation:
    """Groups rows whose aggregates are made of partial rows, as ``plan`` says."""

    def __init__(self, plan: AggregationPlan, rows_bytes: int, scratch: ScratchFolder) -> None:
        self._plan = plan
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(
        self, rows: Iterator[pa.RecordBatch], name: str = "groups", level: int = 0
    ) -> Iterator[pa.Table]:
        """Yield the groups of partial rows, in tables; yield no table if there are no rows.

        ``level`` is the number of times that the rows have been partitioned before. Raises JobError
        for a sum that does not fit its type, and JobFailedError if local files cannot be written.
        """
        held = RowBuffer(concat_partial_rows)
        partitions = self._hold_or_spill(rows, held, name, level)
        if not partitions:
            if held.rows:
                yield self._plan.finish(held.pop())
            return
        for partition in partitions:
            yield from self.results(partition.batches(), f"{name}-{partition.number}", level + 1)
            pa.default_memory_pool().release_unused()

    def _hold_or_spill(
        self, rows: Iterator[pa.RecordBatch], held: RowBuffer, name: str, level: int
    ) -> list[SpillPartition]:
        """Return spill partitions with all rows, or none if all rows could be held in ``held``."""
        combine = self._plan.combine_widening
        while held.fill(rows, self._rows_bytes):
            before = held.rows
            held.append(combine(held.pop()))
            if held.bytes > self._rows_bytes * _MAX_HELD_FRACTION and level < MAX_LEVEL:
                writer = hash_partitioner(self._scratch, name, self._plan.group_by, level)
                pays = held.rows <= before * _MAX_COMBINED_FRACTION
                return spill(rows, held, writer, self._rows_bytes, combine if pays else None)
        return []


class CompleteAggregation:
    """Groups rows whose aggregates need all rows at once: see `partial_aggregates.plan_partials`.

    Rows that do not fit are partitioned by the hash of the key. If a partition is too large because
    of one group, its distinct values are found first, as groups of their own, and are then counted.
    For a quantile its values are sorted.
    """

    def __init__(
        self,
        schema: pa.Schema,
        group_by: Sequence[str],
        aggregates: Sequence[Aggregate],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> None:
        self._schema = schema
        self._group_by = tuple(group_by)
        self._aggregates = tuple(aggregates)
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(
        self, rows: Iterator[pa.RecordBatch], name: str = "groups", level: int = 0
    ) -> Iterator[pa.Table]:
        """Yield the groups of plain rows, as `PartialAggregation.results` does."""
        held = RowBuffer()
        if not held.fill(rows, self._rows_bytes):
            if held.rows:
                yield group(held.pop(), self._group_by, self._aggregates)
            return
        writer = hash_partitioner(self._scratch, name, self._group_by, level)
        partitions = spill(rows, held, writer, self._rows_bytes)
        total = sum(partition.bytes for partition in partitions)
        for partition in partitions:
            inner = f"{name}-{partition.number}"
            is_one_group = partition.bytes > max(self._rows_bytes, total // 2)
            if is_one_group or level + 1 == MAX_LEVEL:
                yield from self._by_values(partition, inner)
            else:
                yield from self.results(partition.batches(), inner, level + 1)
            pa.default_memory_pool().release_unused()

    def _by_values(self, partition: SpillPartition, name: str) -> Iterator[pa.Table]:
        plan = plan_all_partials(self._schema, self._group_by, self._aggregates)
        aggregation = PartialAggregation(plan, self._rows_bytes // 2, self._scratch)
        yield from aggregation.results(self._partial_rows(plan, partition, name), name)
        partition.remove()

    def _partial_rows(
        self, plan: PartialAggregates, partition: SpillPartition, name: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield partial rows for most aggregates, then the distinct values and the quantiles."""
        yield from map(plan.from_rows, partition.peek())
        yield from self._quantiles(plan, partition)
        counted = [each.column for each in self._aggregates if each.function == "count_distinct"]
        for number, column in enumerate(dict.fromkeys(counted)):
            assert column is not None
            pair = list(dict.fromkeys([*self._group_by, column]))
            distinct = plan_all_partials(self._schema, pair, ())
            pairs = (distinct.from_rows(batch) for batch in partition.peek())
            aggregation = PartialAggregation(distinct, self._rows_bytes // 2, self._scratch)
            for table in aggregation.results(pairs, f"{name}-values-{number}"):
                for batch in table.to_batches():
                    yield plan.from_distinct(batch, column)

    def _quantiles(
        self, plan: PartialAggregates, partition: SpillPartition
    ) -> Iterator[pa.RecordBatch]:
        """Yield the quantiles as partial rows."""
        from mrflight.tasks.operators.sorted_quantiles import SortedQuantiles, quantiles_in

        quantiles = SortedQuantiles(self._group_by, self._rows_bytes // 2, self._scratch.root)
        for column, fractions in quantiles_in(plan).items():
            for keys, found in quantiles.results(partition.peek(), column, fractions):
                yield plan.from_results(keys, found)
