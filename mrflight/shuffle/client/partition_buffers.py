"""A writer's buffers: rows by partition that are not sent yet.

All partitions share one budget. A partition is due when its rows make a block.
When the budget is spent, the largest partitions are due as well, until half of
it is free. So a few partitions send whole blocks, and many partitions send
blocks as large as the budget allows. A partition that gets most of the rows
does not make the others send their few rows.

There are two implementations, chosen by `partition_buffers`. If the kernel knows
the columns' layouts, rows go straight into the columns of their partition.
Otherwise they are kept as slices of ordered batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel

BLOCK_BYTES = 2**20
"""A partition's rows are sent when they have this size. Blocks of 1 MiB are put at 1.3 times the
speed of blocks of 256 KiB and read at 1.4 times; blocks of 4 MiB are a little slower again."""

BUFFER_BYTES = 64 * 2**20
"""The default budget of a writer; beyond it, it sends smaller blocks."""

_MAX_BUFFER_BYTES = 2**30
"""With a batch on top, a column of one partition stays below the limit of 32-bit offsets."""

_PIECES = 4
"""A batch is added in pieces of at most one part in so many of the budget, which may be exceeded
by one piece."""

_CACHED_ROWS = 2**16
"""Rows that are scattered at a time. Values are read in the order of their partitions, so they
should be in the cache, but each piece has a cost per partition. With 2,000 partitions and 24 bytes
a row, 2**14 rows at a time take a third longer, and 2**18 do not take less time (1 core, 1 MiB of
L2, 32 MiB of L3)."""

_Int64s = npt.NDArray[np.int64]


class PartitionBuffers(ABC):
    """The rows that one writer holds, by partition and in order. Not safe for several threads."""

    def __init__(self, block_bytes: int, budget_bytes: int) -> None:
        if not 1 <= budget_bytes <= _MAX_BUFFER_BYTES:
            raise ValueError(f"a budget must be 1 to {_MAX_BUFFER_BYTES} bytes, not {budget_bytes}")
        self._block_bytes = block_bytes
        self._budget_bytes = budget_bytes

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """The bytes of memory that holds rows, or is kept for later rows."""

    def add(
        self, batch: pa.RecordBatch, ids: pa.Int32Array
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Add a batch whose rows have the partitions ``ids``, and yield the blocks that are due.

        The batch is added by iterating to the end; `held_bytes` is then at most the budget. Raises
        ValueError for an id that is null or not a partition.
        """
        if batch.nbytes > self._budget_bytes // _PIECES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.add(batch.slice(0, half), ids.slice(0, half))
            yield from self.add(batch.slice(half), ids.slice(half))
            return
        if batch.nbytes > self._budget_bytes:  # one row, sent alone so that its offsets fit
            yield from self.take_all()
        self._append(batch, ids)
        _, sizes = self._measure()
        for partition in np.flatnonzero(sizes >= self._block_bytes).tolist():
            yield partition, self._take(partition)
        if self.held_bytes > self._budget_bytes:
            yield from self._take_largest()

    def take_all(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield every partition that has rows, with its rows; nothing is held at the end."""
        rows, _ = self._measure()
        for partition in np.flatnonzero(rows).tolist():
            yield partition, self._take(partition)
        self._release()

    def _take_largest(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        rows, sizes = self._measure()
        for partition in np.argsort(-sizes, kind="stable").tolist():
            if self._needed_bytes <= self._budget_bytes // 2:
                break
            if rows[partition]:
                yield partition, self._take(partition)
        self._compact()
        if self.held_bytes > self._budget_bytes:  # the remaining rows were larger than average
            yield from self.take_all()

    @abstractmethod
    def _append(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None: ...

    @abstractmethod
    def _measure(self) -> tuple[_Int64s, _Int64s]:
        """Return the rows of each partition, and their bytes."""

    @abstractmethod
    def _take(self, partition: int) -> pa.RecordBatch: ...

    @property
    @abstractmethod
    def _needed_bytes(self) -> int:
        """The bytes that are held after `_compact`."""

    @abstractmethod
    def _compact(self) -> None:
        """Free the memory of rows that have been taken."""

    @abstractmethod
    def _release(self) -> None:
        """Free all memory; there are no rows in it."""


class ScatteredBuffers(PartitionBuffers):
    """Rows in the kernel's growing columns."""

    def __init__(self, rows: kernel.Scatter, block_bytes: int, budget_bytes: int) -> None:
        super().__init__(block_bytes, budget_bytes)
        self._rows = rows

    @property
    def held_bytes(self) -> int:
        return self._rows.used_bytes + self._rows.free_bytes

    def _append(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None:
        for start in range(0, batch.num_rows, _CACHED_ROWS):
            self._rows.add(batch.slice(start, _CACHED_ROWS), ids.slice(start, _CACHED_ROWS))

    def _measure(self) -> tuple[_Int64s, _Int64s]:
        return self._rows.measure()

    def _take(self, partition: int) -> pa.RecordBatch:
        return self._rows.take(partition)

    @property
    def _needed_bytes(self) -> int:
        return self._rows.used_bytes

    def _compact(self) -> None:
        pass  # the memory of taken rows is free or used again

    def _release(self) -> None:
        self._rows.release()


class SlicedBuffers(PartitionBuffers):
    """Rows of any type, as slices of batches that are ordered by partition.

    A slice keeps its whole batch in memory, so held memory is counted in batches. The size of a
    slice is computed from the average row of its batch, because to measure a slice takes longer
    than to make it.
    """

    def __init__(self, partitions: int, block_bytes: int, budget_bytes: int) -> None:
        super().__init__(block_bytes, budget_bytes)
        self._slices: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        self._rows: _Int64s = np.zeros(partitions, np.int64)
        self._sizes: _Int64s = np.zeros(partitions, np.int64)
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def _append(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None:
        indices, offsets = kernel.order_by_partition(ids, len(self._slices))
        if batch.num_rows:
            self._keep(batch.take(indices), offsets.to_numpy())

    def _keep(self, ordered: pa.RecordBatch, offsets: _Int64s) -> None:
        counts = np.diff(offsets)
        for partition in np.flatnonzero(counts).tolist():
            self._slices[partition].append(ordered.slice(offsets[partition], counts[partition]))
        self._rows += counts
        self._sizes += -(-counts * ordered.nbytes // ordered.num_rows)
        self._held_bytes += ordered.nbytes

    def _measure(self) -> tuple[_Int64s, _Int64s]:
        return self._rows.copy(), self._sizes.copy()

    def _take(self, partition: int) -> pa.RecordBatch:
        slices, self._slices[partition] = self._slices[partition], []
        self._rows[partition] = self._sizes[partition] = 0
        return slices[0] if len(slices) == 1 else pa.concat_batches(slices)

    @property
    def _needed_bytes(self) -> int:
        return int(self._sizes.sum())

    def _compact(self) -> None:
        """Copy the remaining rows into one batch, so that their old batches can be freed."""
        left = [part for slices in self._slices for part in slices]
        if not left:
            self._release()
            return
        offsets = np.concatenate([[0], np.cumsum(self._rows)])
        self._slices = [[] for _ in self._slices]
        self._rows[:] = self._sizes[:] = self._held_bytes = 0
        self._keep(pa.concat_batches(left), offsets)

    def _release(self) -> None:
        self._held_bytes = 0


def partition_buffers(
    schema: pa.Schema,
    partitions: int,
    block_bytes: int = BLOCK_BYTES,
    budget_bytes: int = BUFFER_BYTES,
) -> PartitionBuffers:
    """Return empty buffers for batches of ``schema``, of the faster implementation for it."""
    expected_bytes = min(block_bytes, budget_bytes // 2 // partitions)
    rows = kernel.scatter(schema, partitions, budget_bytes, expected_bytes)
    if rows is None:
        return SlicedBuffers(partitions, block_bytes, budget_bytes)
    return ScatteredBuffers(rows, block_bytes, budget_bytes)
