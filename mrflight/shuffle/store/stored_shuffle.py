"""A shuffle in a store: its attempts, and each partition's blocks in order of arrival.

A block's position in that order never changes. Spilled blocks are always the
first ones, so the position tells whether a block is in memory or on disk. A
block on disk is five numbers in an array: with blocks of 16 KiB that is a 400th
of the data, and objects would take ten times as much.

Nothing here locks; the store holds its lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from mrflight.ids import MapAttempt
from mrflight.shuffle.store.block_memory import PAGE_BYTES, Chunk
from mrflight.shuffle.store.spill_file import SpilledBlock
from mrflight.shuffle.wire.block import PACKED_BYTES, Block, SharedBlock
from mrflight.shuffle.wire.tickets import PartitionSlice, in_slice
from mrflight.system.shared_memory import may_hold_another

BLOCK_OVERHEAD_BYTES = 512
"""Bytes that a block in memory counts for, besides its body and pages: the objects around it.
Otherwise blocks of a few bytes would hold many times the budget."""

_NUMBERS = 5  # per spilled block: its attempt, then the fields of SpilledBlock

_DISCARDED = (2**64 - 1, 0, 0, 0, 0)
"""The numbers of a discarded block; no attempt has this number."""


@dataclass(eq=False)
class StoredAttempt:
    """The counts of one map attempt; ``number`` is its position in `StoredShuffle.attempts`."""

    source: MapAttempt
    number: int
    blocks: int = 0
    size_bytes: int = 0
    spilled_blocks: int = 0
    spilled_bytes: int = 0
    discarded: bool = False


class ResidentBlock(NamedTuple):
    """A block in memory, and the bytes that it counts for in the memory budget."""

    attempt: StoredAttempt
    block: Block
    held_bytes: int


class WrittenBlock(NamedTuple):
    """A block that has been written to its partition's file."""

    attempt: StoredAttempt
    block: SpilledBlock


class StoredPartition:
    """The blocks of a partition in order of arrival; None in place of discarded ones."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.resident: list[ResidentBlock | None] = []
        self.resident_bytes = 0
        self.file_bytes = 0
        self.touched = 0
        self._spilled = array("Q")
        self._chunk: Chunk | None = None
        self._garbage_bytes = 0

    @property
    def spilled_count(self) -> int:
        """The number of blocks, the first ones, that are not in memory any more."""
        return len(self._spilled) // _NUMBERS

    def held_bytes(self, size: int) -> int:
        """Return the bytes that a block of ``size`` bytes will count for."""
        fits = size > PACKED_BYTES or (self._chunk is not None and self._chunk.has_room(size))
        return size + BLOCK_OVERHEAD_BYTES + (0 if fits else PAGE_BYTES)

    def add(self, attempt: StoredAttempt, block: Block, held_bytes: int) -> None:
        """Hold a block: a small one is copied, and a large one only if there are many segments."""
        size = block.body.size
        if size <= PACKED_BYTES:
            if self._chunk is None or not self._chunk.has_room(size):
                self._chunk = Chunk.after(self._chunk, size)
            block = self._chunk.copy(block)
        elif isinstance(block, SharedBlock) and not may_hold_another():
            block = Chunk(size).copy(block)
        self.resident.append(ResidentBlock(attempt, block, held_bytes))
        self.resident_bytes += held_bytes

    def discard(self, attempt: StoredAttempt) -> int:
        """Forget an attempt's blocks in memory, and return the bytes that they counted for.

        Small blocks share pages with blocks that stay, and count until those are freed.
        """
        before = self.resident_bytes
        for position, resident in enumerate(self.resident):
            if resident is not None and resident.attempt is attempt:
                self.resident[position] = None
                if resident.block.body.size <= PACKED_BYTES:
                    self._garbage_bytes += resident.held_bytes
                else:
                    self.resident_bytes -= resident.held_bytes
        self._free_garbage()
        return before - self.resident_bytes

    def _free_garbage(self) -> None:
        if self.resident_bytes == self._garbage_bytes:
            self.resident_bytes = self._garbage_bytes = 0
            self._chunk = None

    def forget_blocks(self) -> None:
        """Free all memory."""
        self.resident.clear()
        self.resident_bytes = self._garbage_bytes = 0
        self._chunk = None

    def first_resident(self, size_bytes: int) -> list[ResidentBlock | None]:
        """Return the oldest blocks in memory, up to this size together or a little more."""
        for end, resident in enumerate(self.resident, 1):
            size_bytes -= resident.block.body.size if resident else 0
            if size_bytes <= 0:
                return self.resident[:end]
        return self.resident[:]

    def move_to_disk(self, written: Sequence[WrittenBlock | None]) -> list[WrittenBlock]:
        """Note that the first blocks in memory are on disk now, at the positions in ``written``.

        Returns those whose attempts are not discarded.
        """
        alive = []
        for each, resident in zip(written, self.resident, strict=False):
            if each is None:
                self._spilled.extend(_DISCARDED)
                continue
            self._spilled.extend((each.attempt.number, *each.block))
            self.file_bytes += each.block.size
            if resident is not None:
                alive.append(each)
                self.resident_bytes -= resident.held_bytes
        del self.resident[: len(written)]
        self._free_garbage()
        return alive

    def positions(self) -> list[int]:
        """Return the number of each block's attempt; discarded blocks have one of no attempt."""
        return [
            *self._spilled[::_NUMBERS],
            *(-1 if resident is None else resident.attempt.number for resident in self.resident),
        ]

    def spilled_at(self, position: int) -> SpilledBlock:
        """Return where the block at a position below `spilled_count` is."""
        return SpilledBlock(*self._spilled[position * _NUMBERS + 1 : (position + 1) * _NUMBERS])

    def size_at(self, position: int) -> int:
        """Return the size of a block's body, in memory or on disk."""
        if position < self.spilled_count:
            return self.spilled_at(position).size
        return self.resident_at(position).body.size

    def resident_at(self, position: int) -> Block:
        """Return the block at a position that is in memory and not discarded."""
        resident = self.resident[position - self.spilled_count]
        assert resident is not None
        return resident.block


@dataclass(eq=False)
class StoredShuffle:
    """A shuffle in a store. ``serial`` is unique in the store, and ``token`` everywhere."""

    id: str
    serial: int
    partition_count: int
    token: str = ""
    blocks: int = 0
    size_bytes: int = 0
    spilled_blocks: int = 0
    spilled_bytes: int = 0
    dead_bytes: int = 0
    dropped: bool = False
    spill_folder: Path | None = None
    partitions: dict[int, StoredPartition] = field(default_factory=dict)
    attempts: list[StoredAttempt] = field(default_factory=list)
    by_source: dict[MapAttempt, StoredAttempt] = field(default_factory=dict)

    def spill_path(self, partition: StoredPartition) -> Path:
        """Return the file of a partition that has spilled blocks."""
        assert self.spill_folder is not None
        return self.spill_folder / f"{partition.number}.blocks"

    def partition(self, number: int) -> StoredPartition:
        """Return a partition; it is created empty if nothing was put into it."""
        found = self.partitions.get(number)
        if found is None:
            found = self.partitions[number] = StoredPartition(number)
        return found

    def attempt(self, source: MapAttempt) -> StoredAttempt:
        """Return an attempt; it is created if it has put nothing yet, or was discarded."""
        found = self.by_source.get(source)
        if found is None:
            found = self.by_source[source] = StoredAttempt(source, len(self.attempts))
            self.attempts.append(found)
        return found

    @property
    def resident_bytes(self) -> int:
        """The bytes that its blocks in memory count for."""
        return sum(partition.resident_bytes for partition in self.partitions.values())

    def put(self, partition: int, source: MapAttempt, block: Block, held_bytes: int) -> None:
        attempt = self.attempt(source)
        self.partition(partition).add(attempt, block, held_bytes)
        attempt.blocks += 1
        attempt.size_bytes += block.body.size
        self.blocks += 1
        self.size_bytes += block.body.size

    def forget_blocks(self) -> None:
        """Free all memory, even if readers still have this shuffle."""
        for partition in self.partitions.values():
            partition.forget_blocks()
        self.partitions.clear()

    def discard(self, source: MapAttempt) -> int:
        """Forget an attempt, and return the bytes that its blocks in memory counted for.

        Its blocks on disk are dead space from then on.
        """
        attempt = self.by_source.pop(source, None)
        if attempt is None:
            return 0
        attempt.discarded = True
        self.blocks -= attempt.blocks
        self.size_bytes -= attempt.size_bytes
        self.spilled_blocks -= attempt.spilled_blocks
        self.spilled_bytes -= attempt.spilled_bytes
        self.dead_bytes += attempt.spilled_bytes
        return sum(held.discard(attempt) for held in self.partitions.values())

    def move_to_disk(
        self, partition: StoredPartition, written: Sequence[WrittenBlock | None]
    ) -> int:
        """Note that blocks have been written, and return the bytes that they counted for."""
        before = partition.resident_bytes
        size = sum(each.block.size for each in written if each is not None)
        alive = 0
        for attempt, block in partition.move_to_disk(written):
            attempt.spilled_blocks += 1
            attempt.spilled_bytes += block.size
            self.spilled_blocks += 1
            alive += block.size
        self.spilled_bytes += alive
        self.dead_bytes += size - alive
        return before - partition.resident_bytes

    def reading_order(
        self,
        partition: StoredPartition,
        sources: Iterable[MapAttempt],
        partition_slice: PartitionSlice | None = None,
    ) -> list[tuple[int, StoredAttempt]]:
        """Return the positions of these attempts' blocks: by map, and each map's by arrival.

        With a slice, returns only the positions of its blocks.
        """
        positions: dict[int, list[int]] = {}
        for position, number in enumerate(partition.positions()):
            positions.setdefault(number, []).append(position)
        attempts = (self.by_source.get(source) for source in sorted(sources))
        order = [
            (position, attempt)
            for attempt in attempts
            if attempt is not None
            for position in positions.get(attempt.number, ())
        ]
        if partition_slice is None:
            return order
        sizes = [partition.size_at(position) for position, _ in order]
        return list(compress(order, in_slice(sizes, sum(sizes), partition_slice)))
