"""Spills rows that do not fit into memory to partitions in local files.

A spill partition is an Arrow IPC stream, or several if its columns became wider while it was
written. The files are private to one task, so they need no checksum and no lasting name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.errors import JobFailedError
from mrflight.events.attempt_counts import COUNTS
from mrflight.system.closeable import Closeable
from mrflight.system.scratch import ScratchFolder


class RowBuffer:
    """Tables in their order, with the sum of their rows and bytes.

    ``concat`` concatenates them to one table.
    """

    def __init__(self, concat: Callable[[Sequence[pa.Table]], pa.Table] = pa.concat_tables) -> None:
        self._concat = concat
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0

    def append(self, table: pa.Table) -> None:
        self._tables.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def fill(self, batches: Iterator[pa.RecordBatch], max_bytes: float) -> bool:
        """Take batches until more than ``max_bytes`` are held. Return False if they end before.

        If the last batch exceeds the limit, this returns True, and the next call takes nothing.
        """
        for batch in batches:
            self.append(pa.Table.from_batches([batch]))
            if self.bytes > max_bytes:
                return True
        return False

    def pop(self) -> pa.Table:
        """Return all tables as one, and empty the buffer. An empty buffer returns no columns."""
        tables, self._tables, self.rows, self.bytes = self._tables, [], 0, 0
        return self._concat(tables) if tables else pa.table({})


SPILL_FANOUT = 16
"""The spill partitions that are written at a time. Each gets 1/16 of the rows that are held, so
writes are still large."""

_BITS = 4
"""The bits of the hash that select one of `SPILL_FANOUT` spill partitions."""

WRITE_BYTES = 8 * 2**20
"""The bytes of rows that are partitioned at a time."""

MAX_LEVEL = 8
"""The number of times that rows can be partitioned by a hash. That uses the 32 lowest bits of it.
The highest bits distinguish the partitions of a shuffle, of which there are up to 2^24."""

Ids = Callable[[pa.RecordBatch], pa.Int32Array]
"""Returns the partition of each row, as `Partitioner.ids` does."""


@dataclass
class SpillPartition:
    """Rows in local files, in the order in which they were written."""

    number: int
    """The number among the spill partitions that were written together."""
    paths: list[Path] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    """The bytes that the rows take in memory."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and remove each file once it has been read."""
        yield from self.peek()
        self.remove()

    def peek(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, which can be read again."""
        for path in self.paths:
            with (
                translate_disk_errors(path),
                pa.OSFile(str(path)) as file,
                pa.ipc.open_stream(file) as rows,
            ):
                yield from rows

    def remove(self) -> None:
        for path in self.paths:
            with translate_disk_errors(path):
                path.unlink()
        self.paths = []


class GracePartitioner(Closeable):
    """Writes rows to the spill partitions that ``ids`` returns, in a scratch folder.

    Batches may have any schemas, and are read back in the order of writing. Without ``ids`` there
    is one spill partition with all rows.
    """

    def __init__(
        self, scratch: ScratchFolder, name: str, partitions: int = 1, ids: Ids | None = None
    ) -> None:
        with translate_disk_errors(scratch.root):
            self._folder = scratch.path
        self._name = name
        self._ids = ids
        self._partitions = [SpillPartition(number) for number in range(partitions)]
        self._schema: pa.Schema | None = None
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._files = ExitStack()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to their partitions. Raises JobFailedError if the files cannot be written."""
        if self._schema != batch.schema:
            self._end_files()
            self._schema = batch.schema
        parts = [(0, batch)] if self._ids is None else self._partition(batch, self._ids)
        with translate_disk_errors(self._folder):
            for number, part in parts:
                if part.num_rows:
                    partition = self._partitions[number]
                    self._writer(number, partition).write_batch(part)
                    partition.rows += part.num_rows
                    partition.bytes += part.nbytes
                    COUNTS.spilled_bytes += part.nbytes

    def _partition(self, batch: pa.RecordBatch, ids: Ids) -> list[tuple[int, pa.RecordBatch]]:
        rows, offsets = kernel.order_by_partition(ids(batch), len(self._partitions))
        ordered = batch.take(rows)
        bounds = pairwise(offsets.to_pylist())
        return [(number, ordered.slice(a, b - a)) for number, (a, b) in enumerate(bounds)]

    def write_all(self, held: RowBuffer, batch_bytes: int) -> None:
        """Write all held rows in even batches of about ``batch_bytes``, and empty the buffer."""
        count, table = max(1, round(held.bytes / max(1, batch_bytes))), held.pop()
        rows = max(1, -(-len(table) // count))
        for start in range(0, len(table), rows):
            for batch in table.slice(start, rows).combine_chunks().to_batches():
                self.write(batch)

    def finish(self) -> list[SpillPartition]:
        """Return the partitions in order. Partitions without rows have no files."""
        self._end_files()
        return self._partitions

    def close(self) -> None:
        self._end_files()

    def _writer(self, number: int, partition: SpillPartition) -> pa.ipc.RecordBatchStreamWriter:
        if number not in self._writers:
            path = self._folder / f"{self._name}-{number}.{len(partition.paths)}.arrows"
            file = self._files.enter_context(pa.OSFile(str(path), "wb"))
            partition.paths.append(path)
            stream = pa.ipc.new_stream(file, self._schema)
            self._writers[number] = self._files.enter_context(stream)
        return self._writers[number]

    def _end_files(self) -> None:
        self._writers = {}
        with translate_disk_errors(self._folder):
            self._files.close()


def hash_partitioner(
    scratch: ScratchFolder, name: str, columns: Sequence[str], level: int
) -> GracePartitioner:
    """Return a partitioner into `SPILL_FANOUT` partitions by the hash of some columns.

    Rows with equal keys are in the same partition. Without columns there is one partition.

    The highest bits of a key's hash decide its partition of the shuffle, so all rows of a partition
    may have these bits in common. Level n uses four bits from the 4n-th lowest one on. These bits
    are independent of the shuffle's partition, and no two levels use the same bits.
    """
    if not columns:
        return GracePartitioner(scratch, name)

    def ids(batch: pa.RecordBatch) -> pa.Int32Array:
        return spill_partition_ids(kernel.hash_rows([batch[name] for name in columns]), level)

    return GracePartitioner(scratch, name, SPILL_FANOUT, ids)


def spill_partition_ids(hashes: pa.UInt64Array, level: int) -> pa.Int32Array:
    """Return the spill partition of each hash at this level, and null for null."""
    shift, mask = pa.scalar(_BITS * level, pa.uint64()), pa.scalar(SPILL_FANOUT - 1, pa.uint64())
    return pc.bit_wise_and(pc.shift_right(hashes, shift), mask).cast(pa.int32())


def spill(
    rows: Iterator[pa.RecordBatch],
    held: RowBuffer,
    writer: GracePartitioner,
    max_bytes: int,
    shrink: Callable[[pa.Table], pa.Table] | None = None,
) -> list[SpillPartition]:
    """Write all held rows and all of ``rows`` to spill partitions. Return the partitions with rows.

    The writer is closed. With ``shrink``, which combines rows, up to ``max_bytes`` are held before
    they are written; otherwise only as many as make large writes.
    """
    batch_bytes = min(max_bytes, WRITE_BYTES)
    at_once = batch_bytes if shrink is None else max_bytes
    with writer:
        writer.write_all(held, batch_bytes)
        while held.fill(rows, at_once):
            if shrink is not None:
                held.append(shrink(held.pop()))
            writer.write_all(held, batch_bytes)
        writer.write_all(held, batch_bytes)
        return [partition for partition in writer.finish() if partition.rows]


@contextmanager
def translate_disk_errors(path: Path) -> Iterator[None]:
    """Translate errors of local files to JobFailedError."""
    try:
        yield
    except OSError as error:
        raise JobFailedError(
            f"a partition larger than the memory of its reduce task is spilled to {path}, which "
            f"failed with {error}; free space there, choose another cluster.spill_dir, or set more "
            "shuffle.partitions"
        ) from error
