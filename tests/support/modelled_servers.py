"""What data servers would hold, and what a registry's users remember of its answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from mrflight.ids import MapAttempt
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from tests.support.registries import TIMEOUT_S, Clock

Block = tuple[str, int, MapAttempt]
"""The shuffle, partition and source of rows."""


def rows_of(map_id: int, partition: int) -> int:
    """What a map sends to a partition, whenever it is run. Nothing to some."""
    return (5 * map_id + 3 * partition) % 7


@dataclass
class Process:
    """A data server that runs."""

    incarnation: str
    blocks: dict[Block, int] = field(default_factory=dict)
    copies: set[Block] = field(default_factory=set)
    """Those that another server sent, which knows what it has sent."""

    def take_copies(self, blocks: Mapping[Block, int]) -> list[Block]:
        """Those that it has twice then, as a writer had sent them as well."""
        twice = [block for block in blocks if block in self.blocks and block not in self.copies]
        self.blocks.update(blocks)
        self.copies.update(block for block in blocks if block not in twice)
        return twice

    def shuffles(self) -> list[str]:
        return sorted({shuffle for shuffle, _, _ in self.blocks})

    def forget(self, shuffles: Iterable[str]) -> None:
        gone = set(shuffles)
        self.blocks = {block: n for block, n in self.blocks.items() if block[0] not in gone}
        self.copies &= self.blocks.keys()


@dataclass
class Seen:
    """A partition as a reader was once told of it, and the processes that were there."""

    info: PartitionInfo
    incarnations: dict[str, str]


@dataclass
class ModelShuffle:
    """A shuffle as everybody together remembers it."""

    name: str
    replicas: int
    placement: list[tuple[str, ...]]
    version: int = 0
    moved_in: int = 0
    """The version of the last move."""
    commits: list[MapCommit] = field(default_factory=list)
    sources: list[MapAttempt] = field(default_factory=list)
    """Those that were told that they won, in this order."""
    avoided: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)

    @property
    def maps(self) -> list[int]:
        return sorted({source.map_id for source in self.sources})

    def rows(self, map_id: int) -> list[int]:
        return [rows_of(map_id, partition) for partition in range(len(self.placement))]


@dataclass
class ModelWriter:
    """A writer: where it was told to write, and whether it has."""

    shuffle: ModelShuffle
    source: MapAttempt
    placement: list[tuple[str, ...]]
    version: int
    missing: list[int]
    token: str
    without: set[str] = field(default_factory=set)
    is_written: bool = False


@dataclass
class ModelMove:
    """Partitions that have been copied, and are not yet said to be elsewhere."""

    shuffle: ModelShuffle
    origin: str
    target: str
    partitions: list[int]
    blocks: dict[Block, int]
    target_incarnation: str
    epoch: int
    version: int


@dataclass
class KnownServers:
    """The servers as a registry is to know them, by their locations."""

    clock: Clock
    last_seen: dict[str, float] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)

    def joined(self, location: str, incarnation: str) -> bool:
        """Whether it is another process than the one that was known there."""
        self.saw(location)
        is_another = self.incarnations.get(location) != incarnation
        if is_another:  # else it has said so before
            self.draining.discard(location)
        self.incarnations[location] = incarnation
        return is_another

    def saw(self, location: str) -> None:
        self.last_seen[location] = self.clock.now_s

    def drained(self, location: str) -> None:
        if location in self.last_seen:
            self.draining.add(location)

    def left(self, location: str) -> None:
        self.last_seen.pop(location, None)
        self.incarnations.pop(location, None)
        self.draining.discard(location)

    def expire(self) -> None:
        for location, seen_s in list(self.last_seen.items()):
            if self.clock.now_s - seen_s > TIMEOUT_S:
                self.left(location)

    def open_for_partitions(self, but: Collection[str] = ()) -> set[str]:
        """The locations of those that take them."""
        self.expire()
        return self.last_seen.keys() - self.draining - set(but)


class DataServers:
    """The processes by their locations; who ended is not there."""

    def __init__(self) -> None:
        self.running: dict[str, Process] = {}
        self._started = 0

    def start(self, location: str) -> Process:
        self._started += 1
        self.running[location] = Process(f"process{self._started}")
        return self.running[location]

    def incarnation(self, location: str) -> str | None:
        process = self.running.get(location)
        return process.incarnation if process else None

    def put(self, writer: ModelWriter, unlucky: str | None) -> bool:
        """Write as a writer does, to all replicas that can be reached; whether that is enough."""
        for location in {at for places in writer.placement for at in places}:
            if location not in self.running or location == unlucky:
                writer.without.add(location)
        if any(writer.without.issuperset(places) for places in writer.placement):
            return False
        for partition in writer.missing:
            rows = rows_of(writer.source.map_id, partition)
            for location in writer.placement[partition]:
                if rows and location not in writer.without:
                    block = (writer.shuffle.name, partition, writer.source)
                    self.running[location].blocks[block] = rows
        writer.is_written = True
        return True

    def check(self, shuffle: ModelShuffle, seen: Seen) -> None:
        """Whoever is still there gives each committed map's rows, of one attempt, and no others."""
        info = seen.info
        counting = [
            commit.source
            for commit in shuffle.commits[: info.epoch]
            if commit.counts_for(info.generation)
        ]
        maps = sorted({commit.source.map_id for commit in shuffle.commits[: info.epoch]})
        assert sorted(source.map_id for source in counting) == maps
        expected = {source: rows_of(source.map_id, info.partition) for source in counting}
        assert info.rows == sum(expected.values())
        assert info.size_bytes == 10 * info.rows
        for location in info.locations:
            process = self.running.get(location)
            if process is None or process.incarnation != seen.incarnations[location]:
                continue  # it cannot be reached, as readers will notice
            held = {
                source: process.blocks.get((shuffle.name, info.partition, source), 0)
                for source in counting
            }
            assert held == expected, (location, info)
