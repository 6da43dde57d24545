"""What a store knows of a shuffle: its attempts, and each partition's blocks in order of arrival.

A block's place in that order never changes. The blocks that are spilled are
always the first ones, so a place says whether a block is in memory or on disk.
What is on disk is known by five numbers in an array: with blocks of 16 KiB
that is a 400th of the data, and objects would be ten times as much.

Nothing here locks: it is the store's to hold its lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from mrflight.ids import MapAttempt
from mrflight.shuffle.store.block_memory import PACKED_BYTES, PAGE_BYTES, Chunk
from mrflight.shuffle.store.spill_file import SpilledBlock
from mrflight.shuffle.wire.block import Block
from mrflight.shuffle.wire.tickets import PartitionSlice, in_slice

BLOCK_OVERHEAD_BYTES = 512
"""Counted for a block in memory beside its body and pages: the objects around it. Blocks of a few
bytes would else hold many times the budget."""

_NUMBERS = 5  # of a spilled block: its attempt, then SpilledBlock

_NOTHING = (2**64 - 1, 0, 0, 0, 0)
"""Where a discarded block was: no attempt has this number."""


@dataclass(eq=False)
class StoredAttempt:
    """What is stored of one map attempt; ``number`` is its place in the shuffle."""

    source: MapAttempt
    number: int
    blocks: int = 0
    size_bytes: int = 0
    spilled_blocks: int = 0
    spilled_bytes: int = 0
    discarded: bool = False


class ResidentBlock(NamedTuple):
    """A block in memory, and what it counts for in the memory budget."""

    attempt: StoredAttempt
    block: Block
    held_bytes: int


class WrittenBlock(NamedTuple):
    """A block that has been written to its partition's file."""

    attempt: StoredAttempt
    block: SpilledBlock


class StoredPartition:
    """The blocks of a partition, in order of arrival; None where a discarded one was."""

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
        """How many of the first blocks are not in memory any more."""
        return len(self._spilled) // _NUMBERS

    def held_bytes(self, size: int) -> int:
        """What a block of ``size`` bytes will count for."""
        fits = size > PACKED_BYTES or (self._chunk is not None and self._chunk.has_room(size))
        return size + BLOCK_OVERHEAD_BYTES + (0 if fits else PAGE_BYTES)

    def add(self, attempt: StoredAttempt, block: Block, held_bytes: int) -> None:
        """Hold a block: a small one as a copy, a larger one as it lies."""
        size = block.body.size
        if size <= PACKED_BYTES:
            if self._chunk is None or not self._chunk.has_room(size):
                self._chunk = Chunk.after(self._chunk, size)
            block = block._replace(body=self._chunk.copied(block.body))
        self.resident.append(ResidentBlock(attempt, block, held_bytes))
        self.resident_bytes += held_bytes

    def discard(self, attempt: StoredAttempt) -> int:
        """Forget an attempt's blocks in memory; what they counted for.

        Small ones share pages with blocks that stay, and count until those go.
        """
        before = self.resident_bytes
        for place, resident in enumerate(self.resident):
            if resident is not None and resident.attempt is attempt:
                self.resident[place] = None
                if resident.block.body.size <= PACKED_BYTES:
                    self._garbage_bytes += resident.held_bytes
                else:
                    self.resident_bytes -= resident.held_bytes
        self._let_go_of_garbage()
        return before - self.resident_bytes

    def _let_go_of_garbage(self) -> None:
        if self.resident_bytes == self._garbage_bytes:
            self.resident_bytes = self._garbage_bytes = 0
            self._chunk = None

    def forget_blocks(self) -> None:
        """Let go of all memory."""
        self.resident.clear()
        self.resident_bytes = self._garbage_bytes = 0
        self._chunk = None

    def first_resident(self, size_bytes: int) -> list[ResidentBlock | None]:
        """The longest in memory, of this size together, or a little more."""
        for end, resident in enumerate(self.resident, 1):
            size_bytes -= resident.block.body.size if resident else 0
            if size_bytes <= 0:
                return self.resident[:end]
        return self.resident[:]

    def move_to_disk(self, written: Sequence[WrittenBlock | None]) -> list[WrittenBlock]:
        """The first blocks are on disk now and not in memory: what ``written`` says of each.

        Returns those whose attempts are not discarded.
        """
        alive = []
        for each, resident in zip(written, self.resident, strict=False):
            if each is None:
                self._spilled.extend(_NOTHING)
                continue
            self._spilled.extend((each.attempt.number, *each.block))
            self.file_bytes += each.block.size
            if resident is not None:
                alive.append(each)
                self.resident_bytes -= resident.held_bytes
        del self.resident[: len(written)]
        self._let_go_of_garbage()
        return alive

    def places(self) -> list[int]:
        """By place: the number of its attempt, or of none where a discarded block was."""
        return [
            *self._spilled[::_NUMBERS],
            *(-1 if resident is None else resident.attempt.number for resident in self.resident),
        ]

    def spilled_at(self, place: int) -> SpilledBlock:
        """Where the block of a place that is below `spilled_count` lies."""
        return SpilledBlock(*self._spilled[place * _NUMBERS + 1 : (place + 1) * _NUMBERS])

    def size_at(self, place: int) -> int:
        """Of the block's body, wherever it is."""
        if place < self.spilled_count:
            return self.spilled_at(place).size
        return self.resident_at(place).body.size

    def resident_at(self, place: int) -> Block:
        """The block of a place that is not, and is of an attempt that is not discarded."""
        resident = self.resident[place - self.spilled_count]
        assert resident is not None
        return resident.block


@dataclass(eq=False)
class StoredShuffle:
    """A shuffle of a store; ``serial`` tells two of one name apart here, ``token`` everywhere."""

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
        """The file of a partition that something was spilled of."""
        assert self.spill_folder is not None
        return self.spill_folder / f"{partition.number}.blocks"

    def partition(self, number: int) -> StoredPartition:
        """A partition, empty where nothing was put."""
        found = self.partitions.get(number)
        if found is None:
            found = self.partitions[number] = StoredPartition(number)
        return found

    def attempt(self, source: MapAttempt) -> StoredAttempt:
        """An attempt, new where it has put nothing yet, or was discarded."""
        found = self.by_source.get(source)
        if found is None:
            found = self.by_source[source] = StoredAttempt(source, len(self.attempts))
            self.attempts.append(found)
        return found

    @property
    def resident_bytes(self) -> int:
        """What its blocks in memory count for."""
        return sum(partition.resident_bytes for partition in self.partitions.values())

    def put(self, partition: int, source: MapAttempt, block: Block, held_bytes: int) -> None:
        attempt = self.attempt(source)
        self.partition(partition).add(attempt, block, held_bytes)
        attempt.blocks += 1
        attempt.size_bytes += block.body.size
        self.blocks += 1
        self.size_bytes += block.body.size

    def forget_blocks(self) -> None:
        """Let go of all memory, whoever else still knows this shuffle."""
        for partition in self.partitions.values():
            partition.forget_blocks()
        self.partitions.clear()

    def discard(self, source: MapAttempt) -> int:
        """Forget an attempt; what its blocks in memory counted for. On disk they are dead space."""
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
        """The first blocks of a partition have been written; what they counted for in memory."""
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
        """The places of these attempts' blocks: by map, and each map's in order of arrival.

        Those of one share, where it is given.
        """
        places: dict[int, list[int]] = {}
        for place, number in enumerate(partition.places()):
            places.setdefault(number, []).append(place)
        wanted = (self.by_source.get(source) for source in sorted(sources))
        order = [
            (place, attempt)
            for attempt in wanted
            if attempt is not None
            for place in places.get(attempt.number, ())
        ]
        if partition_slice is None:
            return order
        sizes = [partition.size_at(place) for place, _ in order]
        return list(compress(order, in_slice(sizes, sum(sizes), partition_slice)))
