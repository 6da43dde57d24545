"""Combines the rows of a map task before they are sent, if that reduces them enough.

Only the columns that groups and aggregates need are sent. If all aggregates have partial forms, the
rows that are sent are partial rows, whether they were combined or not.

Combining costs what Acero's grouping costs: 15 ns a row for few keys, and 95 ns for keys that come
once. Each row that is not sent saves the cost of partitioning, sending, receiving and grouping it.
So a sample of the first rows decides whether to combine. Samples of later rows decide again from
time to time, because data may change along a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import describe_difference, empty_batch, empty_table
from mrflight.config.aggregates import Aggregate
from mrflight.errors import SchemaMismatchError
from mrflight.tasks.operators.partial_aggregates import PartialAggregates, plan_partials
from mrflight.tasks.operators.partial_columns import needed_columns
from mrflight.tasks.operators.spill_partitions import RowBuffer

SAMPLE_ROWS = 2**16
"""The rows of a sample, and of the batches whose layout is converted at a time."""

RESAMPLE_EVERY_ROWS = 2**22
"""The rows between two samples while combining does not pay. A sample then costs about 1 ns a
row."""

GATHER_ROWS = 2**18
"""The fewest rows that are combined at a time. Acero does not combine more rows faster."""

GATHER_BYTES = 2**24
"""The fewest bytes that are combined at a time, if the memory allows it. Of narrow rows, a million
with 100,000 skewed keys, the kernel then combines groups with each other less often: that saves a
fifth of the time."""

_FEW_GROUPS_PER_ROW = 0.01
"""Rows with at most so many groups are combined batch by batch: to gather them is to copy them."""

MAX_GROUPS_PER_ROW = 0.5
"""The most groups per row of a sample for which combining pays.

That corresponds to 60 thousand keys that occur equally often. Combining them costs about 40 ns a
row and leaves 0.23 of 256k rows. Each row that is not sent saves 60 to 80 ns, and its bytes on the
wire.
"""

MIN_COMPACTED_ROWS = 2**16
"""The fewest groups that are held before they are combined with each other."""

_MAX_COMPACTED_FRACTION = 0.8
"""Groups continue to be held if combining them again leaves at most this fraction of them."""


MapCombiner = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Reduces the mapped batches of a map task to the rows that it sends: at least one batch if there
are any, with the schema that all maps send. Raises SchemaMismatchError if the columns of a batch
differ from those of the first."""


def combine_groups(
    batches: Iterable[pa.RecordBatch],
    group_by: Sequence[str] | None,
    aggregates: Sequence[Aggregate],
    memory_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a map task sends to be grouped, in their order; see `MapCombiner`.

    The batches have been checked with `check_aggregates` and may have any layout. Half of
    ``memory_bytes`` is for rows that wait to be combined, and half for groups. If ``group_by`` is
    None, rows that are equal in all columns form a group. If it is empty, all rows form one group.
    """
    mapped = check_same_columns(iter(batches))
    first = next(mapped, None)
    if first is None:
        return
    group_by = first.schema.names if group_by is None else group_by
    # At least one column is sent, because a batch without columns has no number of rows.
    columns = needed_columns(group_by, aggregates) or first.schema.names[:1]
    schema = canonical_schema(empty_table(first.schema).select(columns).schema)
    plan = plan_partials(schema, group_by, aggregates)
    rows = _select_needed(chain([first], mapped), schema)
    if plan is None:
        yield empty_batch(schema)
        yield from rows
    else:
        yield from combine_partial_rows(plan, map(plan.from_rows, rows), memory_bytes)


def _select_needed(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of ``schema`` in its canonical layout, a slice of rows at a time."""
    for batch in batches:
        used = batch.select(schema.names)
        # A dictionary's values may be large.
        rows = GATHER_ROWS if used.schema.equals(schema) else SAMPLE_ROWS
        for start in range(0, used.num_rows, rows):
            yield to_canonical(used.slice(start, rows), schema)


def combine_rows(
    batches: Iterable[pa.RecordBatch],
    combine: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield whole rows that a map task sends, as ``combine`` selects them; see `MapCombiner`."""
    rows = _to_same_layout(iter(batches))
    if (first := next(rows, None)) is not None:
        yield empty_batch(first.schema)
        yield from combine(chain([first], rows))


def combine_partial_rows(
    plan: PartialAggregates, batches: Iterable[pa.RecordBatch], memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield partial rows, combined as long as that pays, in their order; at least one batch."""
    yield empty_batch(plan.schema)
    yield from combine_where_it_pays(plan, batches, memory_bytes, plan.running_sums())


class CombinePlan(Protocol):
    """A plan that can combine the rows of a key."""

    def combine(self, rows: pa.Table) -> pa.Table | None:
        """Return one row per key; None if these rows cannot be combined."""


def combine_where_it_pays(
    plan: CombinePlan,
    batches: Iterable[pa.RecordBatch],
    memory_bytes: int,
    sums: kernel.RunningSums | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, combined while that leaves far fewer. Rows of a key keep their order.

    With ``sums``, which combine as the plan does, most rows need not be gathered first.
    """
    yield from _AdaptiveCombiner(plan, memory_bytes, sums).combine(batches)


class _AdaptiveCombiner:
    """Combines rows as long as that pays, and otherwise passes them on unchanged."""

    def __init__(
        self, plan: CombinePlan, memory_bytes: int, sums: kernel.RunningSums | None
    ) -> None:
        self._plan = plan
        self._sums = sums
        self._known_groups = 0
        """The groups of the sums when a sample was taken last."""
        self._max_bytes = memory_bytes // 2
        self._pays: bool | None = None
        """True if combining pays; None before the first sample."""
        self._are_few = False
        self._gathered = RowBuffer()
        self._groups = RowBuffer()
        self._rows_since_sample = 0
        self._bytes_since_sample = 0
        """The bytes that were added to the sums."""
        self._compact_at = MIN_COMPACTED_ROWS

    def combine(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, which are combined as long as that pays."""
        for piece in chain.from_iterable(map(self._pieces, batches)):
            self._rows_since_sample += piece.num_rows
            if not self._needs_sample(0):
                yield piece
            elif self._sums is not None and self._pays and self._sums.add(piece):
                self._bytes_since_sample += piece.nbytes
                yield from self._judge_sums(self._sums)
            else:
                self._gathered.append(pa.Table.from_batches([piece]))
                if self._has_enough():
                    yield from self._take_sample()
        if self._gathered.rows:
            self._combine_gathered()
        if self._groups.rows:
            yield from self._compact()
        yield from self._release_groups()

    def _judge_sums(self, sums: kernel.RunningSums) -> Iterator[pa.RecordBatch]:
        """Send the sums if they take their memory, or if combining does not pay any more."""
        is_full = sums.used_bytes > self._max_bytes  # as copies, they take the half of the rows
        rows = self._rows_since_sample
        if is_full or (rows >= GATHER_ROWS and self._bytes_since_sample >= GATHER_BYTES):
            self._pays = sums.groups - self._known_groups <= rows * MAX_GROUPS_PER_ROW
            self._begin_sample(sums.groups)
        if is_full or not self._pays:
            yield from self._release_groups()

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch; of one that is sampled, the sample comes first."""
        if not self._pays and batch.num_rows > SAMPLE_ROWS and self._needs_sample(batch.num_rows):
            yield batch.slice(0, SAMPLE_ROWS)
            batch = batch.slice(SAMPLE_ROWS)
        yield batch

    def _needs_sample(self, rows: int) -> bool:
        """Return whether rows are gathered to be combined or to be a sample, after so many more."""
        return self._pays is not False or self._rows_since_sample + rows > RESAMPLE_EVERY_ROWS

    def _has_enough(self) -> bool:
        """Return whether enough rows are gathered to be combined."""
        held = self._gathered
        if held.bytes > self._max_bytes:
            return True
        if self._pays and not self._are_few:
            return held.rows >= GATHER_ROWS and held.bytes >= GATHER_BYTES
        return held.rows >= SAMPLE_ROWS

    def _take_sample(self) -> Iterator[pa.RecordBatch]:
        """Combine the gathered rows, and decide from the result whether combining pays."""
        rows, groups = self._combine_gathered()
        self._begin_sample(self._known_groups)
        self._pays = groups <= rows * MAX_GROUPS_PER_ROW
        self._are_few = groups <= rows * _FEW_GROUPS_PER_ROW
        if not self._pays:
            yield from self._release_groups()
            return
        if self._sums is not None:
            self._sum_groups(self._sums)
        if self._groups.rows > self._compact_at or self._groups.bytes > self._max_bytes:
            yield from self._compact()

    def _sum_groups(self, sums: kernel.RunningSums) -> None:
        """Add the groups that are held to the sums, but for those with nulls."""
        for batch in self._groups.pop().to_batches():
            if not sums.add(batch):
                self._groups.append(pa.Table.from_batches([batch]))
        self._known_groups = sums.groups

    def _begin_sample(self, known_groups: int) -> None:
        self._known_groups = known_groups
        self._rows_since_sample = self._bytes_since_sample = 0

    def _combine_gathered(self) -> tuple[int, int]:
        """Combine the gathered rows, hold the groups, and return the numbers of both."""
        rows = self._gathered.pop()
        combined = self._plan.combine(rows)
        self._groups.append(rows if combined is None else combined)
        return len(rows), len(rows if combined is None else combined)

    def _compact(self) -> Iterator[pa.RecordBatch]:
        """Combine the groups that are held, and send them if that does not leave far fewer."""
        held = self._groups.pop()
        combined = self._plan.combine(held)
        self._groups.append(held if combined is None else combined)
        self._compact_at = max(MIN_COMPACTED_ROWS, 2 * self._groups.rows)
        is_small = self._groups.bytes <= self._max_bytes // 2
        if not is_small or self._groups.rows > len(held) * _MAX_COMPACTED_FRACTION:
            yield from self._release_groups()

    def _release_groups(self) -> Iterator[pa.RecordBatch]:
        yield from self._groups.pop().to_batches()
        if self._sums is not None and self._sums.groups:
            yield self._sums.take()
            self._known_groups = 0


def check_same_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, which must have the columns of the first one.

    Raises SchemaMismatchError. Their layouts may differ.
    """
    first: pa.Schema | None = None
    for number, batch in enumerate(batches):
        schema = canonical_schema(batch.schema)
        first = first or schema
        if difference := describe_difference(first, schema):
            raise SchemaMismatchError(f"mapped batch {number} differs from the first: {difference}")
        yield batch


def _to_same_layout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches in the canonical layout, checked as by `check_same_columns`."""
    for batch in check_same_columns(batches):
        yield to_canonical(batch, canonical_schema(batch.schema))
