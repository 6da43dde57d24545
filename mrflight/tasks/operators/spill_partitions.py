"""Rows that do not fit into memory, cut into pieces in local files.

A piece is an Arrow IPC stream, or several where its columns became wider
while it was written. What is local and private to one task needs no checksum
and no name that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from mrflight.compute import kernel
from mrflight.errors import JobFailedError
from mrflight.system.closeable import Closeable
from mrflight.system.scratch import ScratchFolder


class RowBuffer:
    """Tables in their order; ``concat`` makes one of them."""

    def __init__(self, concat: Callable[[Sequence[pa.Table]], pa.Table] = pa.concat_tables) -> None:
        self._concat = concat
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0

    def append(self, table: pa.Table) -> None:
        self._tables.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def fill(self, batches: Iterator[pa.RecordBatch], most_bytes: float) -> bool:
        """Take batches until what is held passes so many bytes; False where they end before.

        With the last of them it may pass as well: then True, and the next call takes nothing.
        """
        for batch in batches:
            self.append(pa.Table.from_batches([batch]))
            if self.bytes > most_bytes:
                return True
        return False

    def pop(self) -> pa.Table:
        """All of them as one; nothing is left. With nothing held it has no columns."""
        tables, self._tables, self.rows, self.bytes = self._tables, [], 0, 0
        return self._concat(tables) if tables else pa.table({})


SPILL_FANOUT = 16
"""That rows are cut into at a time: each gets 1/16 of what is held, still in large writes."""

_BITS = 4
"""Of the hash that tell so many pieces apart."""

WRITE_BYTES = 8 * 2**20
"""Of rows that are put in their places at a time."""

MAX_LEVEL = 8
"""Of cutting by a hash: that takes its 32 lowest bits. Up to 2^24 partitions are told apart by
the highest."""

Ids = Callable[[pa.RecordBatch], pa.Int32Array]
"""The piece of each row, as a partitioner's ``ids``."""


@dataclass
class SpillPartition:
    """Rows in local files, in the order in which they were written."""

    number: int
    """Of the piece among those that it was cut with."""
    paths: list[Path] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    """As Arrow counts them in memory."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; files are removed as soon as they have been read to the end."""
        yield from self.peek()
        self.remove()

    def peek(self) -> Iterator[pa.RecordBatch]:
        """The rows; they can be read again."""
        for path in self.paths:
            with local_files(path), pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as rows:
                yield from rows

    def remove(self) -> None:
        for path in self.paths:
            with local_files(path):
                path.unlink()
        self.paths = []


class GracePartitioner(Closeable):
    """Writes rows into the pieces that ``ids`` says, below a scratch folder.

    Batches may be of any schemas: reading gives them back one after the other.
    Without ``ids`` there is one piece, which gets all rows.
    """

    def __init__(
        self, scratch: ScratchFolder, name: str, pieces: int = 1, ids: Ids | None = None
    ) -> None:
        with local_files(scratch.root):
            self._folder = scratch.path
        self._name = name
        self._ids = ids
        self._pieces = [SpillPartition(number) for number in range(pieces)]
        self._schema: pa.Schema | None = None
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._files = ExitStack()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to their pieces. JobFailedError where the files cannot be written."""
        if self._schema != batch.schema:
            self._end_files()
            self._schema = batch.schema
        parts = [(0, batch)] if self._ids is None else self._placed(batch, self._ids)
        with local_files(self._folder):
            for number, part in parts:
                if part.num_rows:
                    piece = self._pieces[number]
                    self._writer(number, piece).write_batch(part)
                    piece.rows += part.num_rows
                    piece.bytes += part.nbytes

    def _placed(self, batch: pa.RecordBatch, ids: Ids) -> list[tuple[int, pa.RecordBatch]]:
        rows, offsets = kernel.order_by_partition(ids(batch), len(self._pieces))
        ordered = batch.take(rows)
        bounds = pairwise(offsets.to_pylist())
        return [(number, ordered.slice(a, b - a)) for number, (a, b) in enumerate(bounds)]

    def write_all(self, held: RowBuffer, batch_bytes: int) -> None:
        """Write what is held, in even batches of about that size; then nothing is."""
        count, table = max(1, round(held.bytes / max(1, batch_bytes))), held.pop()
        rows = max(1, -(-len(table) // count))
        for start in range(0, len(table), rows):
            for batch in table.slice(start, rows).combine_chunks().to_batches():
                self.write(batch)

    def finish(self) -> list[SpillPartition]:
        """The pieces in order; those without rows have no files."""
        self._end_files()
        return self._pieces

    def close(self) -> None:
        self._end_files()

    def _writer(self, number: int, piece: SpillPartition) -> pa.ipc.RecordBatchStreamWriter:
        if number not in self._writers:
            path = self._folder / f"{self._name}-{number}.{len(piece.paths)}.arrows"
            file = self._files.enter_context(pa.OSFile(str(path), "wb"))
            piece.paths.append(path)
            stream = pa.ipc.new_stream(file, self._schema)
            self._writers[number] = self._files.enter_context(stream)
        return self._writers[number]

    def _end_files(self) -> None:
        self._writers = {}
        with local_files(self._folder):
            self._files.close()


def hash_writer(
    scratch: ScratchFolder, name: str, columns: Sequence[str], level: int
) -> GracePartitioner:
    """Cuts by the hash of some columns into `SPILL_FANOUT`; rows of equal keys go together.

    Without columns all rows are equal, and there is one piece.

    The partition is made of the highest bits of its key's hash, so that rows
    of one partition may share them. Level n looks at four bits from the 4n-th
    lowest on: they say nothing about the partition, whether its key is hashed
    here or other columns, and every level has its own.
    """
    if not columns:
        return GracePartitioner(scratch, name)

    def ids(batch: pa.RecordBatch) -> pa.Int32Array:
        return spill_partition_ids(kernel.hash_rows([batch[name] for name in columns]), level)

    return GracePartitioner(scratch, name, SPILL_FANOUT, ids)


def spill_partition_ids(hashes: pa.UInt64Array, level: int) -> pa.Int32Array:
    """Of each hash the piece at this level, of `SPILL_FANOUT`; null where that is."""
    import pyarrow.compute as pc

    shift, mask = pa.scalar(_BITS * level, pa.uint64()), pa.scalar(SPILL_FANOUT - 1, pa.uint64())
    return pc.bit_wise_and(pc.shift_right(hashes, shift), mask).cast(pa.int32())


def cut(
    rows: Iterator[pa.RecordBatch],
    held: RowBuffer,
    writer: GracePartitioner,
    most_bytes: int,
    shrink: Callable[[pa.Table], pa.Table] | None = None,
) -> list[SpillPartition]:
    """What is held and all rows that come, in pieces, none empty; closes the writer.

    ``most_bytes`` are held before they are written: as much of them as makes large writes, or
    all where ``shrink`` makes fewer rows of them.
    """
    batch_bytes = min(most_bytes, WRITE_BYTES)
    at_once = batch_bytes if shrink is None else most_bytes
    with writer:
        writer.write_all(held, batch_bytes)
        while held.fill(rows, at_once):
            if shrink is not None:
                held.append(shrink(held.pop()))
            writer.write_all(held, batch_bytes)
        writer.write_all(held, batch_bytes)
        return [piece for piece in writer.finish() if piece.rows]


@contextmanager
def local_files(path: Path) -> Iterator[None]:
    """What the file system says of local files, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise JobFailedError(
            f"a partition larger than the memory of its reduce task goes through {path}, and there "
            f"is {error}; make room there, choose another cluster.spill_dir, or take more "
            "shuffle.partitions"
        ) from error
