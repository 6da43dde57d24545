"""Sorts a stream of rows of any size in bounded memory.

Rows that do not fit are written to a local file while their keys are sampled. The file is then cut
into ranges that fit, by boundaries from the sample. Each range is sorted by itself, or cut again if
it is still too large. A key that would fill a range has a range of its own: its rows need no
sorting, and are streamed in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from mrflight.compute.sorting import sort_indices
from mrflight.config.sort_key import SortKey, columns_of
from mrflight.shuffle.client.range_partitioner import RangePartitioner, choose_boundaries
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.key_sample import KeySample
from mrflight.tasks.operators.spill_partitions import (
    GracePartitioner,
    RowBuffer,
    SpillPartition,
    spill,
)

MIN_RANGES = 4
"""The fewest ranges; they have three boundaries. Either the boundaries are different keys, or the
rows of one key are a range of their own. So each new range is smaller than the range that was
cut."""

MAX_RANGES = 64
"""The most ranges at a time. Each has a file of its own."""

PARTITIONED_FRACTION = 3
"""A third of the rows' memory is put into ranges at a time, because doing so sorts these rows and
copies them twice. The process then grows by three times the rows' memory. If all of it is put into
ranges at once, the process grows by seven times, and is no faster (8 million rows of 16 bytes in
5.3 MiB: 15 and 35 MiB)."""

SAMPLES_PER_RANGE = 100
"""With this many samples, the sizes of ranges differ by about ten per cent. Ranges are planned half
as large as they may be."""


class ExternalSort:
    """Sorts as `sort_indices` does: rows with equal keys keep their order."""

    def __init__(
        self, sort_keys: Sequence[SortKey], rows_bytes: int, scratch: ScratchFolder
    ) -> None:
        self._sort_keys = tuple(sort_keys)
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield all rows in order. Raises JobFailedError if local files cannot be written."""
        sample = self._sample()
        rows = sample.observe(rows)
        held = RowBuffer()
        if not held.fill(rows, self._rows_bytes):
            if held.rows:
                yield self._sort(held.pop())
            return
        writer = GracePartitioner(self._scratch, "unsorted")
        (everything,) = spill(rows, held, writer, self._rows_bytes // PARTITIONED_FRACTION)
        yield from self._by_ranges(everything, sample.keys(), "rows")

    def _sample(self) -> KeySample:
        step_bytes = self._rows_bytes // (2 * SAMPLES_PER_RANGE)
        return KeySample(columns_of(self._sort_keys), step_bytes, self._rows_bytes // 2)

    def _sort(self, table: pa.Table) -> pa.Table:
        return table.take(sort_indices(table, self._sort_keys))

    def _sort_partition(self, partition: SpillPartition, name: str) -> Iterator[pa.Table]:
        if partition.bytes <= self._rows_bytes or partition.rows < MIN_RANGES:
            yield self._sort(pa.Table.from_batches(partition.batches()))
            pa.default_memory_pool().release_unused()
            return
        sample = self._sample()
        for _ in sample.observe(partition.peek()):
            pass
        yield from self._by_ranges(partition, sample.keys(), name)

    def _by_ranges(
        self, partition: SpillPartition, keys: pa.Table, name: str
    ) -> Iterator[pa.Table]:
        """Yield the rows of a spill partition range by range, given a sample of its keys."""
        ranges = min(MAX_RANGES, max(MIN_RANGES, -(-2 * partition.bytes // self._rows_bytes)))
        boundaries = choose_boundaries(keys, self._sort_keys, ranges, repeats=True)
        partitioner = RangePartitioner(self._sort_keys, boundaries, boundaries.num_rows + 1)
        bounded, repeats = np.unique(partitioner.ids(boundaries), return_counts=True)
        one_key_ranges = set(bounded[repeats > 1].tolist())
        is_one_key = len(bounded) == len(one_key_ranges) == 1  # as far as the sample shows
        if is_one_key and _is_all_in(bounded[0], partition, partitioner):
            yield from _stream(partition)
            return
        writer = GracePartitioner(self._scratch, name, partitioner.partitions, partitioner.ids)
        rows = partition.batches()
        for part in spill(rows, RowBuffer(), writer, self._rows_bytes // PARTITIONED_FRACTION):
            if part.number in one_key_ranges:
                yield from _stream(part)
            else:
                yield from self._sort_partition(part, f"{name}-{part.number}")


def _is_all_in(number: int, partition: SpillPartition, partitioner: RangePartitioner) -> bool:
    """Return whether all rows are in one range. Reading stops at the first row of another range."""
    return all((partitioner.ids(batch).to_numpy() == number).all() for batch in partition.peek())


def _stream(partition: SpillPartition) -> Iterator[pa.Table]:
    for batch in partition.batches():
        yield pa.Table.from_batches([batch])
