"""Rows by partition that are not sent yet: a writer's blocks while they grow.

All partitions share one budget. A partition is due when its rows make a block;
when the budget is spent, the largest partitions are due as well, until half of
it is free. So few partitions send whole blocks, many send blocks as large as
the budget allows, and a partition that gets most of the rows does not make the
others send their few.

There are two forms, chosen by `partition_buffers`: rows go straight into the
columns of their partition where the kernel knows the layouts, and are kept as
slices of ordered batches elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel

BLOCK_BYTES = 2**20
"""A partition's rows are sent when they weigh this much: see experiments/transport.py."""

BUFFER_BYTES = 64 * 2**20
"""What a writer holds of all partitions before it sends blocks that are smaller."""

_MAX_BUFFER_BYTES = 2**30
"""With a batch on top of it, a column of one partition stays below what 32-bit offsets reach."""

_PIECES = 4
"""A batch goes in by pieces of at most this part of the budget, which is passed by so much."""

_CACHED_ROWS = 2**16
"""Numbers are read in the order of their partitions, which wants a piece to be in the cache, and
each piece has its cost per partition: with 2,000 partitions and 24 bytes a row, 2**14 rows at a
time take a third longer, 2**18 no less (1 core, 1 MiB of L2, 32 MiB of L3)."""

_Int64s = npt.NDArray[np.int64]


class PartitionBuffers(ABC):
    """The rows that one writer holds, by partition; those of one partition in their order.

    Not for several threads.
    """

    def __init__(self, block_bytes: int, budget_bytes: int) -> None:
        if not 1 <= budget_bytes <= _MAX_BUFFER_BYTES:
            raise ValueError(f"a budget is 1 to {_MAX_BUFFER_BYTES} bytes, not {budget_bytes}")
        self._block_bytes = block_bytes
        self._budget_bytes = budget_bytes

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """The bytes of the memory that rows are in, or that is kept for the rows to come."""

    def add(
        self, batch: pa.RecordBatch, ids: pa.Int32Array
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Add a batch, of which ``ids`` are the partitions; gives the blocks that are due.

        Nothing is added but by iterating to the end, after which `held_bytes`
        is at most the budget. Raises ValueError for an id that is null or no
        partition.
        """
        if batch.nbytes > self._budget_bytes // _PIECES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.add(batch.slice(0, half), ids.slice(0, half))
            yield from self.add(batch.slice(half), ids.slice(half))
            return
        if batch.nbytes > self._budget_bytes:  # one row: alone, its offsets are its batch's
            yield from self.take_all()
        self._append(batch, ids)
        _, sizes = self._measure()
        for partition in np.flatnonzero(sizes >= self._block_bytes).tolist():
            yield partition, self._take(partition)
        if self.held_bytes > self._budget_bytes:
            yield from self._take_largest()

    def take_all(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Every partition that has rows, with them; nothing is held at the end."""
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
        if self.held_bytes > self._budget_bytes:  # the rows that are left were larger than others
            yield from self.take_all()

    @abstractmethod
    def _append(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None: ...

    @abstractmethod
    def _measure(self) -> tuple[_Int64s, _Int64s]:
        """How many rows each partition has, and how many bytes they take."""

    @abstractmethod
    def _take(self, partition: int) -> pa.RecordBatch: ...

    @property
    @abstractmethod
    def _needed_bytes(self) -> int:
        """What is held once `_compact` has been called."""

    @abstractmethod
    def _compact(self) -> None:
        """Let go of memory whose rows have been taken."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of all memory; there are no rows in it."""


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
        pass  # what is taken is gone, or is used again

    def _release(self) -> None:
        self._rows.release()


class SlicedBuffers(PartitionBuffers):
    """Rows of any type, as slices of the batches that were added, in the order of partitions.

    A slice keeps its whole batch in memory, so what is held is counted in
    batches. Sizes are of the average row of a batch: to ask every slice takes
    longer than to make it.
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
        """Copy the rows that are left into one batch, so that theirs are let go of."""
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
    """Empty buffers for batches of ``schema``, in the form that is the fastest for it."""
    expected_bytes = min(block_bytes, budget_bytes // 2 // partitions)
    rows = kernel.scatter(schema, partitions, budget_bytes, expected_bytes)
    if rows is None:
        return SlicedBuffers(partitions, block_bytes, budget_bytes)
    return ScatteredBuffers(rows, block_bytes, budget_bytes)
