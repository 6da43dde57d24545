"""Joins two streams of rows of any size in bounded memory, by a grace hash join.

Both sides are read until one of them ends. That side becomes the build side, which the rows of the
other side probe. If neither side ends within its part of the memory, both are spilled to local
files, in partitions by the hash of the key, and each pair of partitions is joined. A pair that is
too large on both sides is partitioned again. If that would not help, because one key has very many
rows, the smaller side is held in several parts, and the other side is read once for each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from mrflight.compute.arrays import to_arrow
from mrflight.compute.schemas import empty_table
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.build_side import SLICE_ROWS, BuildSide, Mask
from mrflight.tasks.operators.join_output import JoinPlan, JoinSide
from mrflight.tasks.operators.spill_partitions import (
    MAX_LEVEL,
    SPILL_FANOUT,
    GracePartitioner,
    RowBuffer,
    SpillPartition,
    spill,
    spill_partition_ids,
)

MAX_BUILD_PASSES = 3
"""The other side is read up to this many times. Partitioning both sides again would write it and
read it once more, which is no cheaper."""

MAX_REPARTITIONED_FRACTION = 0.5
"""Partitioning again does not help if it left more than this fraction of the bytes in one
partition, as is the case for a single key."""

BATCH_BYTES = 2**20
"""Small batches are coalesced up to this many bytes, or `SLICE_ROWS`, before they probe."""

Batches = Iterator[pa.RecordBatch]


class GraceHashJoin:
    """Joins two sides, and holds about ``rows_bytes`` of each in memory."""

    def __init__(self, plan: JoinPlan, rows_bytes: int, scratch: ScratchFolder) -> None:
        self._plan = plan
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(self, left: Batches, right: Batches) -> Iterator[pa.Table]:
        """Yield the result for canonical batches. Tables may be empty."""
        rows = {"left": left, "right": right}
        held = {"left": RowBuffer(), "right": RowBuffer()}
        ended = self._read(rows, held)
        if ended is None:
            yield from self._partition_both(rows, held, "join", 0)
            return
        side = self._plan.side(ended)
        other = self._plan.other(side).name
        streamed = chain(held[other].pop().to_batches(), rows[other])
        yield from self._join_all(side, _take_all(held[ended], side), lambda: streamed)

    def _read(self, rows: dict[str, Batches], held: dict[str, RowBuffer]) -> str | None:
        """Read into the smaller buffer until one side ends, and return the name of that side.

        Return None if neither side ends within the memory.
        """
        while True:
            smaller = min(rows, key=lambda name: held[name].bytes)
            if held[smaller].bytes > self._rows_bytes:
                return None
            batch = next(rows[smaller], None)
            if batch is None:
                return smaller
            held[smaller].append(pa.Table.from_batches([batch]))

    def _partition_both(
        self, rows: dict[str, Batches], held: dict[str, RowBuffer], name: str, level: int
    ) -> Iterator[pa.Table]:
        """Partition both sides by their hashes, and join each pair of partitions."""
        partitions: dict[str, dict[int, SpillPartition]] = {}
        for side in (self._plan.left, self._plan.right):
            writer = _writer(self._scratch, f"{name}-{side.name}", side, level)
            found = spill(rows[side.name], held[side.name], writer, self._rows_bytes)
            partitions[side.name] = {partition.number: partition for partition in found}
        sizes = [
            sum(partition.bytes for partition in found.values()) for found in partitions.values()
        ]
        for number in sorted(partitions["left"].keys() | partitions["right"].keys()):
            both = {
                side: found.get(number, SpillPartition(number))
                for side, found in partitions.items()
            }
            if number == SPILL_FANOUT:
                yield from self._null_keys(both)
            else:
                yield from self._join_partition(both, f"{name}-{number}", level + 1, min(sizes))
            pa.default_memory_pool().release_unused()

    def _join_partition(
        self, both: dict[str, SpillPartition], name: str, level: int, cut_bytes: int
    ) -> Iterator[pa.Table]:
        """Join a partition of each side. The smaller side had ``cut_bytes`` before partitioning."""
        smaller = min(both, key=lambda side: both[side].bytes)
        side, size = self._plan.side(smaller), both[smaller].bytes
        other = both[self._plan.other(side).name]
        is_few = size <= self._rows_bytes * MAX_BUILD_PASSES
        if size <= self._rows_bytes:
            held = RowBuffer()
            held.fill(both[smaller].batches(), np.inf)
            yield from self._join_all(side, _take_all(held, side), other.batches)
        elif is_few or size > cut_bytes * MAX_REPARTITIONED_FRACTION or level == MAX_LEVEL:
            parts = _parts(both[smaller].batches(), self._rows_bytes)
            yield from self._join_all(side, parts, other.peek)
            other.remove()
        else:
            rows = {side: partition.batches() for side, partition in both.items()}
            yield from self._partition_both(rows, {side: RowBuffer() for side in both}, name, level)

    def _null_keys(self, both: dict[str, SpillPartition]) -> Iterator[pa.Table]:
        """Yield the rows whose keys have a null.

        This partition only has rows that are in the result.
        """
        for name, partition in both.items():
            side = self._plan.side(name)
            for batch in partition.batches():
                yield from self._alone(side, batch, _no_matches(batch))

    def _join_all(
        self,
        side: JoinSide,
        parts: Iterator[tuple[pa.Table, bool]],
        others: Callable[[], Batches],
    ) -> Iterator[pa.Table]:
        """Join all rows of one side, in parts, with all rows of the other.

        Each part has a flag that is True for the last one. The other side is read once for each
        part, and must come in the same batches each time.
        """
        other = self._plan.other(side)
        matched_before: list[bytes] = []
        for table, is_last in parts:
            held = BuildSide(self._plan, side, table)
            del table  # the build side has a copy
            matched_now: list[bytes] = []
            for number, batch in enumerate(_coalesce(others())):
                matched = (
                    _unpack(matched_before[number], batch) if matched_before else _no_matches(batch)
                )
                yield from held.probe(batch, matched)
                if is_last:
                    yield from self._alone(other, batch, matched)
                elif other.keeps_rows:
                    matched_now.append(np.packbits(matched).tobytes())
            matched_before = matched_now
            yield from held.unmatched_rows()

    def _alone(self, side: JoinSide, batch: pa.RecordBatch, matched: Mask) -> Iterator[pa.Table]:
        """Yield the rows of a batch that are in the result by themselves."""
        if side.keeps_rows:
            selected = matched if side.keeps_matched else ~matched
            rows = batch if selected.all() else batch.filter(to_arrow(selected))
            yield self._plan.alone(side, pa.Table.from_batches([rows]))


def _take_all(held: RowBuffer, side: JoinSide) -> Iterator[tuple[pa.Table, bool]]:
    """Yield all held rows as the only part, and keep no reference to them."""
    yield held.pop() if held.rows else empty_table(side.schema), True


def _writer(scratch: ScratchFolder, name: str, side: JoinSide, level: int) -> GracePartitioner:
    """Return a partitioner by the key's hash, with one more partition for unmatched rows."""

    def ids(batch: pa.RecordBatch) -> pa.Int32Array:
        hashes = side.hashes(batch)
        return spill_partition_ids(hashes, level).fill_null(SPILL_FANOUT)

    return GracePartitioner(scratch, name, SPILL_FANOUT + 1, ids)


def _parts(batches: Batches, max_bytes: int) -> Iterator[tuple[pa.Table, bool]]:
    """Yield at least one table of about ``max_bytes``, each with a flag for the last one."""
    held = RowBuffer()
    for batch in batches:
        if held.bytes > max_bytes:
            yield held.pop(), False
        held.append(pa.Table.from_batches([batch]))
    yield held.pop(), True


def _coalesce(batches: Batches) -> Batches:
    """Yield batches of at least `BATCH_BYTES` or `SLICE_ROWS`: each batch costs some calls."""
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


def _no_matches(batch: pa.RecordBatch) -> Mask:
    return np.zeros(batch.num_rows, np.bool_)


def _unpack(bits: bytes, batch: pa.RecordBatch) -> Mask:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=batch.num_rows).astype(np.bool_)
