"""Combines the rows of a map before they are sent, where that pays.

What is sent has only the columns that groups and aggregates are made of, and
where the aggregates can be taken apart it is partial rows, whether they have
been merged or not. Merging costs what Acero's grouping costs, 15 ns a row for
few keys and 95 for keys that come once; a row that is not sent saves placing,
sending, receiving and grouping it: see experiments/combine.py. So a look at
the first rows decides, and now and then a look at later ones, as data may
change along a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import describe_difference, empty_batch
from mrflight.errors import SchemaMismatchError
from mrflight.tasks.operators.aggregates import Aggregate
from mrflight.tasks.operators.partial_aggregates import PartialAggregates, plan_partials
from mrflight.tasks.operators.partial_columns import needed_columns
from mrflight.tasks.operators.spill_partitions import RowBuffer

SAMPLE_ROWS = 2**16
"""That the first look groups, and a batch at a time."""

RESAMPLE_EVERY_ROWS = 2**22
"""Where merging did not pay: a look then costs about 1 ns per row."""

GATHER_ROWS = 2**18
"""That are merged at a time: more of them are not merged faster."""

MAX_GROUPS_PER_ROW = 0.5
"""Of the rows that were looked at, where merging pays.

That is 60 thousand keys that come equally often. Merging them costs about 40 ns a row, and
leaves 0.23 of 256k rows; a row that is left out saves 60 to 80 ns, and what the wire takes.
"""

MIN_COMPACTED_ROWS = 2**16
"""Of groups that are held, before they are merged with each other."""

_SHRUNK = 0.8
"""Of the groups that were held, where merging them once more has been worth it."""


class Combiner:
    """Makes of one map's rows what is sent of them; counts the rows in and out.

    ``memory_bytes`` is what it holds: half of it rows that wait to be merged,
    half groups. Where ``group_by`` is None the groups are of rows that are equal in all columns,
    and where it is empty all rows are one.
    """

    def __init__(
        self, group_by: Sequence[str] | None, aggregates: Sequence[Aggregate], memory_bytes: int
    ) -> None:
        self._group_by = None if group_by is None else tuple(group_by)
        self._aggregates = tuple(aggregates)
        self._memory_bytes = memory_bytes
        self.rows_in = 0
        self.rows_out = 0

    def combine(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What is sent of mapped batches, in their order; of no batches none, else at least one.

        The batches have been checked (`check_aggregates`); their layout may
        be any. Raises SchemaMismatchError where their columns differ from those of the first.
        """
        for batch in self._combined(iter(batches)):
            self.rows_out += batch.num_rows
            yield batch

    def _combined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        group_by = first.schema.names if self._group_by is None else self._group_by
        columns = needed_columns(group_by, self._aggregates)
        columns = columns or first.schema.names[:1]  # of no column nobody knows how many rows
        schema = canonical_schema(first.schema.empty_table().select(columns).schema)
        plan = plan_partials(schema, group_by, self._aggregates)
        rows = self._needed(first, batches, schema)
        if plan is None:
            yield empty_batch(schema)
            yield from rows
        else:
            yield from combine_partial_rows(plan, map(plan.from_rows, rows), self._memory_bytes)

    def _needed(
        self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The columns of ``schema``, in its plain layout, some rows at a time."""
        for batch in check_same_columns(chain([first], others)):
            self.rows_in += batch.num_rows
            used = batch.select(schema.names)
            for start in range(0, used.num_rows, SAMPLE_ROWS):  # a dictionary's values may be large
                yield to_canonical(used.slice(start, SAMPLE_ROWS), schema)


def combine_partial_rows(
    plan: PartialAggregates, batches: Iterable[pa.RecordBatch], memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Partial rows merged as long as that pays, in their order; at least one batch."""
    yield empty_batch(plan.schema)
    yield from combine_where_it_pays(plan, batches, memory_bytes)


class Mergeable(Protocol):
    """How rows of one key are made fewer, where they can be."""

    def merge(self, rows: pa.Table) -> pa.Table | None:
        """One row per key; None where these rows cannot be merged."""


def combine_where_it_pays(
    plan: Mergeable, batches: Iterable[pa.RecordBatch], memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Rows merged where that makes far fewer of them; those of one key keep their order."""
    yield from _Merger(plan, memory_bytes).merge(batches)


class _Merger:
    """Merges rows as long as that pays, and passes them on as they are otherwise."""

    def __init__(self, plan: Mergeable, memory_bytes: int) -> None:
        self._plan = plan
        self._most_bytes = memory_bytes // 2
        self._pays: bool | None = None
        """None before the first look."""
        self._gathered = RowBuffer()
        self._groups = RowBuffer()
        self._rows_since_look = 0
        self._compact_at = MIN_COMPACTED_ROWS

    def merge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._rows_since_look += batch.num_rows
            if self._pays is False and self._rows_since_look <= RESAMPLE_EVERY_ROWS:
                yield batch
                continue
            self._gathered.append(pa.Table.from_batches([batch]))
            wanted = GATHER_ROWS if self._pays else SAMPLE_ROWS
            if self._gathered.rows >= wanted or self._gathered.bytes > self._most_bytes:
                yield from self._look()
        if self._gathered.rows:
            self._merge_gathered()
        if self._groups.rows:
            yield from self._compact()
            yield from self._let_go()

    def _look(self) -> Iterator[pa.RecordBatch]:
        """Merge what is gathered, and see what comes of it."""
        rows, groups = self._merge_gathered()
        self._rows_since_look = 0
        self._pays = groups <= rows * MAX_GROUPS_PER_ROW
        if not self._pays:
            yield from self._let_go()
        elif self._groups.rows > self._compact_at or self._groups.bytes > self._most_bytes:
            yield from self._compact()

    def _merge_gathered(self) -> tuple[int, int]:
        """Put the groups of what is gathered to those that are held: how many came of how many."""
        rows = self._gathered.pop()
        merged = self._plan.merge(rows)
        self._groups.append(rows if merged is None else merged)
        return len(rows), len(rows if merged is None else merged)

    def _compact(self) -> Iterator[pa.RecordBatch]:
        """Merge the groups that are held, and let them go where they do not become fewer."""
        held = self._groups.pop()
        merged = self._plan.merge(held)
        self._groups.append(held if merged is None else merged)
        self._compact_at = max(MIN_COMPACTED_ROWS, 2 * self._groups.rows)
        is_small = self._groups.bytes <= self._most_bytes // 2
        if not is_small or self._groups.rows > len(held) * _SHRUNK:
            yield from self._let_go()

    def _let_go(self) -> Iterator[pa.RecordBatch]:
        yield from self._groups.pop().to_batches()


def check_same_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as they are; SchemaMismatchError for one whose columns differ from the first's.

    Layouts may differ.
    """
    first: pa.Schema | None = None
    for number, batch in enumerate(batches):
        schema = canonical_schema(batch.schema)
        first = first or schema
        if difference := describe_difference(first, schema):
            raise SchemaMismatchError(
                f"mapped batch {number} does not agree with the first: {difference}"
            )
        yield batch


def to_same_layout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as `check_same_columns` gives them, in the layout that rows travel in."""
    for batch in check_same_columns(batches):
        yield to_canonical(batch, canonical_schema(batch.schema))
