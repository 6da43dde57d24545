"""Joins two streams of rows of any size in bounded memory.

Both sides are read until one has ended: its rows are held, and those of the other stream past them.
Where neither ends in its share of the memory both go to local files, in pieces by the hash of the
key, and piece meets piece; a piece that is too large on both sides is cut again. Where that is in
vain, as of a key with very many rows, its smaller side is held part by part, and the other is read
for each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from mrflight.compute.arrays import to_arrow
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.build_side import SLICE_ROWS, BuildSide, Mask
from mrflight.tasks.operators.join_output import JoinPlan, JoinSide
from mrflight.tasks.operators.spill_partitions import (
    MAX_LEVEL,
    SPILL_FANOUT,
    GracePartitioner,
    RowBuffer,
    SpillPartition,
    cut,
    spill_partition_ids,
)

MAX_BUILD_PASSES = 3
"""The other side is rather read so often than written and read once more, as cutting both would."""

SHRINKS = 0.5
"""Of what was cut, where a key has so many rows that cutting it again is in vain."""

BATCH_BYTES = 2**20
"""Of small batches that are put together before they meet the other side, up to `SLICE_ROWS`."""

Batches = Iterator[pa.RecordBatch]


class GraceHashJoin:
    """One join of two sides, of each of which it holds about ``rows_bytes``."""

    def __init__(self, plan: JoinPlan, rows_bytes: int, scratch: ScratchFolder) -> None:
        self._plan = plan
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(self, left: Batches, right: Batches) -> Iterator[pa.Table]:
        """The result of plain batches that have the columns of their sides; some may be empty."""
        rows = {"left": left, "right": right}
        held = {"left": RowBuffer(), "right": RowBuffer()}
        ended = self._read(rows, held)
        if ended is None:
            yield from self._cut(rows, held, "join", 0)
            return
        side = self._plan.side(ended)
        other = self._plan.other(side).name
        streamed = chain(held[other].pop().to_batches(), rows[other])
        yield from self._met(side, _whole(held[ended], side), lambda: streamed)

    def _read(self, rows: dict[str, Batches], held: dict[str, RowBuffer]) -> str | None:
        """Hold both sides, the smaller one first, until one has ended; None if neither does."""
        while True:
            smaller = min(rows, key=lambda name: held[name].bytes)
            if held[smaller].bytes > self._rows_bytes:
                return None
            batch = next(rows[smaller], None)
            if batch is None:
                return smaller
            held[smaller].append(pa.Table.from_batches([batch]))

    def _cut(
        self, rows: dict[str, Batches], held: dict[str, RowBuffer], name: str, level: int
    ) -> Iterator[pa.Table]:
        """Cut both sides by their hashes, and join piece by piece."""
        pieces: dict[str, dict[int, SpillPartition]] = {}
        for side in (self._plan.left, self._plan.right):
            writer = _writer(self._scratch, f"{name}-{side.name}", side, level)
            found = cut(rows[side.name], held[side.name], writer, self._rows_bytes)
            pieces[side.name] = {piece.number: piece for piece in found}
        sizes = [sum(piece.bytes for piece in found.values()) for found in pieces.values()]
        for number in sorted(pieces["left"].keys() | pieces["right"].keys()):
            both = {
                side: found.get(number, SpillPartition(number)) for side, found in pieces.items()
            }
            if number == SPILL_FANOUT:
                yield from self._meeting_none(both)
            else:
                yield from self._piece(both, f"{name}-{number}", level + 1, min(sizes))
            pa.default_memory_pool().release_unused()

    def _piece(
        self, both: dict[str, SpillPartition], name: str, level: int, cut_bytes: int
    ) -> Iterator[pa.Table]:
        """Join a piece of each side. What was cut had ``cut_bytes`` on its smaller side."""
        smaller = min(both, key=lambda side: both[side].bytes)
        side, size = self._plan.side(smaller), both[smaller].bytes
        other = both[self._plan.other(side).name]
        is_few = size <= self._rows_bytes * MAX_BUILD_PASSES
        if size <= self._rows_bytes:
            held = RowBuffer()
            held.fill(both[smaller].batches(), np.inf)
            yield from self._met(side, _whole(held, side), other.batches)
        elif is_few or size > cut_bytes * SHRINKS or level == MAX_LEVEL:
            parts = _parts(both[smaller].batches(), self._rows_bytes)
            yield from self._met(side, parts, other.peek)
            other.remove()
        else:
            rows = {side: piece.batches() for side, piece in both.items()}
            yield from self._cut(rows, {side: RowBuffer() for side in both}, name, level)

    def _meeting_none(self, both: dict[str, SpillPartition]) -> Iterator[pa.Table]:
        """The rows whose keys have a null. Only those came here that are in the result."""
        for name, piece in both.items():
            side = self._plan.side(name)
            for batch in piece.batches():
                yield from self._alone(side, batch, _none_of(batch))

    def _met(
        self,
        side: JoinSide,
        parts: Iterator[tuple[pa.Table, bool]],
        others: Callable[[], Batches],
    ) -> Iterator[pa.Table]:
        """All rows of one side, part by part and whether it is the last, with all of the other.

        These are asked for once for each part, and come in the same batches.
        """
        other = self._plan.other(side)
        met_before: list[bytes] = []
        for table, is_last in parts:
            held = BuildSide(self._plan, side, table)
            del table  # it has been copied
            met_now: list[bytes] = []
            for number, batch in enumerate(_in_larger(others())):
                met = _unpacked(met_before[number], batch) if met_before else _none_of(batch)
                yield from held.meet(batch, met)
                if is_last:
                    yield from self._alone(other, batch, met)
                elif other.keeps_rows:
                    met_now.append(np.packbits(met).tobytes())
            met_before = met_now
            yield from held.rest()

    def _alone(self, side: JoinSide, batch: pa.RecordBatch, met: Mask) -> Iterator[pa.Table]:
        """The rows of a batch that are in the result alone."""
        if side.keeps_rows:
            wanted = met if side.keeps_met else ~met
            rows = batch if wanted.all() else batch.filter(to_arrow(wanted))
            yield self._plan.alone(side, pa.Table.from_batches([rows]))


def _whole(held: RowBuffer, side: JoinSide) -> Iterator[tuple[pa.Table, bool]]:
    """All that is held, as the only part; nothing keeps it here."""
    yield held.pop() if held.rows else side.schema.empty_table(), True


def _writer(scratch: ScratchFolder, name: str, side: JoinSide, level: int) -> GracePartitioner:
    """Into pieces by the hash of the key, and one more for rows that meet none."""

    def ids(batch: pa.RecordBatch) -> pa.Int32Array:
        hashes = side.hashes(batch)
        return spill_partition_ids(hashes, level).fill_null(SPILL_FANOUT)

    return GracePartitioner(scratch, name, SPILL_FANOUT + 1, ids)


def _parts(batches: Batches, most_bytes: int) -> Iterator[tuple[pa.Table, bool]]:
    """Tables of about so many bytes, of which there are some, and whether it is the last."""
    held = RowBuffer()
    for batch in batches:
        if held.bytes > most_bytes:
            yield held.pop(), False
        held.append(pa.Table.from_batches([batch]))
    yield held.pop(), True


def _in_larger(batches: Batches) -> Batches:
    """The rows in batches of `BATCH_BYTES` or `SLICE_ROWS`, as each costs some calls."""
    held = RowBuffer()
    for batch in batches:
        if not held.rows and _is_large(batch.num_rows, batch.nbytes):
            yield batch
            continue
        held.append(pa.Table.from_batches([batch]))
        if _is_large(held.rows, held.bytes):
            yield from held.pop().combine_chunks().to_batches()
    if held.rows:
        yield from held.pop().combine_chunks().to_batches()


def _is_large(rows: int, size: int) -> bool:
    return rows >= SLICE_ROWS or size >= BATCH_BYTES


def _none_of(batch: pa.RecordBatch) -> Mask:
    return np.zeros(batch.num_rows, np.bool_)


def _unpacked(bits: bytes, batch: pa.RecordBatch) -> Mask:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=batch.num_rows).astype(np.bool_)
