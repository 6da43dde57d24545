"""A model of data servers and their blocks, and of the answers that clients of a registry got."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from mrflight.ids import MapAttempt
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from tests.support.clusters.registries import TIMEOUT_S, Clock

Block = tuple[str, int, MapAttempt]
"""The shuffle, partition and source of rows."""


def rows_of(map_id: int, partition: int) -> int:
    """Return how many rows a map sends to a partition, each time it runs; for some it is 0."""
    return (5 * map_id + 3 * partition) % 7


@dataclass
class Process:
    """A running data server."""

    incarnation: str
    blocks: dict[Block, int] = field(default_factory=dict)
    copies: set[Block] = field(default_factory=set)
    """The blocks that another server copied here, which may send them again."""

    def take_copies(self, blocks: Mapping[Block, int]) -> list[Block]:
        """Store copies; return those that are there twice, as a writer sent them too."""
        sent_by_writers = self.blocks.keys() - self.copies
        duplicates = [block for block in blocks if block in sent_by_writers]
        self.blocks.update(blocks)
        self.copies.update(block for block in blocks if block not in duplicates)
        return duplicates

    def shuffles(self) -> list[str]:
        return sorted({shuffle for shuffle, _, _ in self.blocks})

    def forget(self, shuffles: Iterable[str]) -> None:
        gone = set(shuffles)
        self.blocks = {block: n for block, n in self.blocks.items() if block[0] not in gone}
        self.copies &= self.blocks.keys()


@dataclass
class Seen:
    """The answer to a reader about a partition, and the processes at its locations then."""

    info: PartitionInfo
    incarnations: dict[str, str]


@dataclass
class ModelShuffle:
    """A shuffle as all of its clients together remember it."""

    name: str
    replicas: int
    placement: list[tuple[str, ...]]
    version: int = 0
    moved_in: int = 0
    """The version of the last move."""
    commits: list[MapCommit] = field(default_factory=list)
    sources: list[MapAttempt] = field(default_factory=list)
    """The attempts that were answered that they are committed, in this order."""
    avoided: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)

    @property
    def maps(self) -> list[int]:
        return sorted({source.map_id for source in self.sources})

    def rows(self, map_id: int) -> list[int]:
        return [rows_of(map_id, partition) for partition in range(len(self.placement))]


@dataclass
class ModelWriter:
    """A writer: the placement that it got, and whether it has written."""

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
    """Partitions that were copied to a target, and not moved there yet."""

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
    """The servers that a registry should know, by location."""

    clock: Clock
    last_seen: dict[str, float] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)

    def register(self, location: str, incarnation: str) -> bool:
        """Register a process; return whether another one or none was registered there."""
        self.hear_from(location)
        is_another = self.incarnations.get(location) != incarnation
        if is_another:  # the same process keeps draining
            self.draining.discard(location)
        self.incarnations[location] = incarnation
        return is_another

    def hear_from(self, location: str) -> None:
        self.last_seen[location] = self.clock.now_s

    def drain(self, location: str) -> None:
        if location in self.last_seen:
            self.draining.add(location)

    def remove(self, location: str) -> None:
        self.last_seen.pop(location, None)
        self.incarnations.pop(location, None)
        self.draining.discard(location)

    def expire(self) -> None:
        for location, seen_s in list(self.last_seen.items()):
            if self.clock.now_s - seen_s > TIMEOUT_S:
                self.remove(location)

    def open_for_partitions(self, avoided: Collection[str] = ()) -> set[str]:
        """Return the locations of the servers that take partitions."""
        self.expire()
        return self.last_seen.keys() - self.draining - set(avoided)


class DataServers:
    """The running processes by location."""

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
        """Write to all replicas that can be reached; return whether each partition has one."""
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
        """Check that each remaining replica has the rows of one attempt per committed map."""
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
                continue  # a reader cannot reach it
            held = {
                source: process.blocks.get((shuffle.name, info.partition, source), 0)
                for source in counting
            }
            assert held == expected, (location, info)
