"""Sorts a stream of rows of any size in bounded memory.

What does not fit is written to a local file while its keys are sampled, then
cut into ranges that do fit, by boundaries from the sample; each is sorted by
itself. A range that is still too large is cut again. Where most of it is one
key, it is cut into what is below, equal and above, and the equal rows need no
sorting: they stream in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.scratch import ScratchFolder
from mrflight.shuffle.partitioners import RangePartitioner, choose_boundaries, sort_indices
from mrflight.workers.held_rows import HeldRows
from mrflight.workers.pieces import Piece, PieceWriter, in_one_file

LEAST_RANGES = 4
"""Three boundaries: a key that has all of them fills half of the rows."""

MOST_RANGES = 64
"""That rows are cut into at a time, each by its own file."""

SAMPLES_PER_RANGE = 100
"""Ranges are then within about ten per cent of even, and are planned half as large as may be."""


class ExternalSort:
    """Sorts by some columns as `sort_indices` does: rows of equal keys keep their order."""

    def __init__(self, names: Sequence[str], rows_bytes: int, scratch: ScratchFolder) -> None:
        self._names = list(names)
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """All rows in their order. JobFailedError where local files cannot be written."""
        held = HeldRows()
        for batch in rows:
            held.append(pa.Table.from_batches([batch]))
            if held.bytes > self._rows_bytes:
                break
        else:
            if held.rows:
                yield self._sorted(held.pop())
            return
        sample = _Sample(self._names, self._rows_bytes // (2 * SAMPLES_PER_RANGE))
        everything = sample.taken_of(_large_batches(held, rows))
        piece = in_one_file(everything, self._scratch, "unsorted")
        yield from self._cut(piece, sample, "rows")

    def _sorted(self, table: pa.Table) -> pa.Table:
        return table.take(sort_indices(table, self._names))

    def _sorted_piece(self, piece: Piece, name: str) -> Iterator[pa.Table]:
        if piece.rows == 0:
            return
        if piece.bytes <= self._rows_bytes:
            yield self._sorted(pa.Table.from_batches(piece.batches()))
            pa.default_memory_pool().release_unused()
            return
        sample = _Sample(self._names, self._rows_bytes // (2 * SAMPLES_PER_RANGE))
        for _ in sample.taken_of(piece.peek()):
            pass
        yield from self._cut(piece, sample, name)

    def _cut(self, piece: Piece, sample: _Sample, name: str) -> Iterator[pa.Table]:
        """The rows of a piece that is too large, range by range."""
        keys = sample.keys()
        ranges = min(MOST_RANGES, max(LEAST_RANGES, -(-2 * piece.bytes // self._rows_bytes)))
        frequent = _frequent(keys, ranges)
        if frequent is not None:
            yield from self._around(piece, frequent, name)
            return
        boundaries = choose_boundaries(keys, self._names, ranges)
        partitioner = RangePartitioner(tuple(self._names), boundaries, len(boundaries) + 1)
        for number, part in enumerate(self._written(piece, partitioner, name)):
            yield from self._sorted_piece(part, f"{name}-{number}")

    def _around(self, piece: Piece, key: pa.RecordBatch, name: str) -> Iterator[pa.Table]:
        """The rows below a key, those that are equal to it, and those above."""
        ways = _ThreeWays(tuple(self._names), key)
        below, equal, above = self._written(piece, ways, name)
        yield from self._sorted_piece(below, f"{name}-below")
        for batch in equal.batches():
            yield pa.Table.from_batches([batch])
        yield from self._sorted_piece(above, f"{name}-above")

    def _written(
        self, piece: Piece, partitioner: RangePartitioner | _ThreeWays, name: str
    ) -> list[Piece]:
        ranges = partitioner.partitions
        with PieceWriter(self._scratch, name, ranges, partitioner.ids) as writer:
            for batch in piece.batches():
                writer.write(batch)
            return writer.finish()


@dataclass(frozen=True)
class _ThreeWays:
    """Places rows below a key, with it, and above it."""

    key: tuple[str, ...]
    middle: pa.RecordBatch
    """One row of the key's columns."""
    partitions: int = 3

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        keys = pa.Table.from_batches([batch.select(list(self.key))])
        order = _positions(pa.concat_tables([keys, pa.Table.from_batches([self.middle])]), self.key)
        is_above = order[:-1] > order[-1]  # equal rows stand before it, as they come before it
        order = _positions(pa.concat_tables([pa.Table.from_batches([self.middle]), keys]), self.key)
        is_below = order[1:] < order[0]
        ids = np.ones(batch.num_rows, np.int32) + is_above - is_below
        return pa.array(ids.astype(np.int32))


class _Sample:
    """Keys of rows that are ``step_bytes`` apart."""

    def __init__(self, names: Sequence[str], step_bytes: int) -> None:
        self._names = list(names)
        self._step_bytes = step_bytes
        self._next = 0
        self._keys: list[pa.Table] = []

    def taken_of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, which are sampled on their way."""
        for batch in batches:
            step = max(1, self._step_bytes * batch.num_rows // max(1, batch.nbytes))
            rows = np.arange(min(self._next, step), batch.num_rows, step)
            keys = batch.select(self._names).take(pa.array(rows))
            self._keys.append(pa.Table.from_batches([keys]))
            last = int(rows[-1]) + step if len(rows) else min(self._next, step)
            self._next = last - batch.num_rows
            yield batch

    def keys(self) -> pa.Table:
        return pa.concat_tables(self._keys)


def _frequent(keys: pa.Table, ranges: int) -> pa.RecordBatch | None:
    """The key that would fill two of so many even ranges, the first where there are several."""
    ordered = keys.take(sort_indices(keys, keys.column_names)).combine_chunks()
    cuts = [len(ordered) * part // ranges for part in range(1, ranges)]
    for first, last in zip(cuts, cuts[2:], strict=False):
        pair = ordered.take(pa.array([first, last]))
        if choose_boundaries(pair, pair.column_names, 2 * len(pair)).num_rows == 1:
            return pair.slice(0, 1).combine_chunks().to_batches()[0]
    return None


def _positions(table: pa.Table, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Where each row stands among all when they are sorted."""
    order = sort_indices(table, names).to_numpy()
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions


def _large_batches(held: HeldRows, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is held and what comes, some MiB at a time."""
    yield from held.pop().to_batches()
    yield from rows
