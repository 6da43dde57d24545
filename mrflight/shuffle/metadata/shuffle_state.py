"""A shuffle as its metadata server knows it: where partitions are, and which attempts count there.

The placement has a version, which grows with every change. A partition has a
generation: the version in which it was placed on servers without any of its
rows, 0 unless it was lost. A committed attempt has the version that its writer
saw. It counts for the partitions whose generation is not beyond that version,
and that no earlier attempt of the same map counts for. So of each map at most
one attempt counts for a partition, whatever was lost in between, and a map whose
last version is below a partition's generation has to be written again, for
those partitions only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.counts import Counts, unpacked
from mrflight.shuffle.metadata.events import (
    MapCommitted,
    MapsCommitted,
    PartitionsPlaced,
    ShuffleMade,
)
from mrflight.shuffle.metadata.placement import IndexedPlacement
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo

NEVER = -1
"""The version of a map that nobody has written."""


@dataclass
class ShuffleState:
    """A shuffle: its placement, and the sum of what its committed attempts promised."""

    id: str
    token: str
    replicas: int
    lease_s: float | None
    placement: list[tuple[str, ...]]
    """Without a location: the partition is lost, and there is no server to place it on."""
    renewed_s: float
    version: int = 0
    schema: pa.Schema | None = None
    commits: list[MapCommit] = field(default_factory=list)
    """In their order: an epoch is a length of this list."""
    sources: set[MapAttempt] = field(default_factory=set)
    last_of: dict[int, MapCommit] = field(default_factory=dict)
    sent_by: dict[int, int] = field(default_factory=dict)
    """Of each map a hash of what it sent where: see `hash_of_sent`."""
    avoided: set[str] = field(default_factory=set)
    stale: set[tuple[int, str]] = field(default_factory=set)
    """Partitions and locations that may have blocks which count, and of which copies are read: sent
    there again they would be there twice."""
    lost_at: dict[str, None] = field(default_factory=dict)
    """The locations that rows were lost with, in this order."""
    generation: npt.NDArray[np.int64] = field(init=False)
    moved_in: npt.NDArray[np.int64] = field(init=False)
    """The version in which a partition last got locations that open writers do not write to."""
    indexed: IndexedPlacement = field(init=False)
    """Every map asks for it: to make it of 10,000 partitions takes 5 ms."""
    homeless: list[int] = field(init=False)
    """The partitions without a location."""
    rows: Counts = field(init=False)
    size_bytes: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.generation, self.moved_in, self.rows, self.size_bytes = (
            np.zeros(len(self.placement), np.int64) for _ in range(4)
        )
        self._look_at_placement()

    def _look_at_placement(self) -> None:
        self.indexed = IndexedPlacement.of(self.placement)
        self.homeless = [p for p, places in enumerate(self.placement) if not places]

    @classmethod
    def made(cls, event: ShuffleMade, now_s: float) -> ShuffleState:
        placement = [tuple(event.locations[i] for i in places) for places in event.placement]
        return cls(event.id, event.token, event.replicas, event.lease_s, placement, now_s)

    def forget(self, location: str) -> None:
        """What was held at a location is gone."""
        self.avoided.discard(location)
        self.stale = {pair for pair in self.stale if pair[1] != location}

    def locations(self) -> list[str]:
        """All that hold some of it, in their order."""
        return sorted({location for locations in self.placement for location in locations})

    def written_in(self, map_id: int) -> int:
        """The version that a map was last written in."""
        last = self.last_of.get(map_id)
        return NEVER if last is None else last.until

    def wanted(self, map_id: int) -> list[int]:
        """The partitions for which nothing of a map counts."""
        missing: list[int] = np.flatnonzero(self.generation > self.written_in(map_id)).tolist()
        return missing

    def lost_maps(self) -> list[int]:
        """The maps that were committed, and of which some partitions are lost."""
        newest = int(self.generation.max())
        if newest == 0:  # nothing was ever lost: not worth a look at every map, four times a second
            return []
        return sorted(map_id for map_id, last in self.last_of.items() if last.until < newest)

    def lost_of(self, partition: int) -> list[int]:
        """The maps that were committed and that a partition has lost."""
        generation = self.generation[partition]
        return sorted(map_id for map_id, last in self.last_of.items() if last.until < generation)

    def winner(self, source: MapAttempt, version: int) -> MapAttempt | None:
        """Who counts for the map of ``source``, which saw ``version``; None: that is to be seen."""
        if source in self.sources:
            return source
        last = self.last_of.get(source.map_id)
        if last is None or self.covered(source.map_id, version).any():
            return None
        return last.source

    def covered(self, map_id: int, version: int) -> npt.NDArray[np.bool_]:
        """By partition, whether an attempt of a map that saw ``version`` will count for it."""
        return (self.written_in(map_id) < self.generation) & (self.generation <= version)

    def apply_commit(self, event: MapCommitted) -> None:
        covered = self.covered(event.map_id, event.version)
        source = MapAttempt(event.map_id, event.attempt, event.writer)
        commit = MapCommit(source, self.written_in(event.map_id), event.version)
        rows = unpacked(event.rows)
        self.rows[covered] += rows[covered]
        self.size_bytes[covered] += unpacked(event.size_bytes)[covered]
        self._add(commit, hash_of_sent(rows, event.routing), event.schema)

    def apply_commits(self, event: MapsCommitted) -> None:
        """As `apply_commit` of one after the other."""
        self.rows += unpacked(event.rows)
        self.size_bytes += unpacked(event.size_bytes)
        for map_id, attempt, writer, since, until, sent in event.commits:
            commit = MapCommit(MapAttempt(map_id, attempt, writer), since, until)
            self._add(commit, sent, event.schema)

    def _add(self, commit: MapCommit, sent: int, encoded_schema: bytes) -> None:
        self.commits.append(commit)
        self.sources.add(commit.source)
        self.last_of[commit.source.map_id] = commit
        self.sent_by.setdefault(commit.source.map_id, sent)
        if self.schema is None:
            schema = pa.ipc.read_schema(pa.py_buffer(encoded_schema))
            self.schema = schema if len(schema) else None

    def apply_placed(self, event: PartitionsPlaced) -> None:
        self.version += 1
        self.avoided.update(event.avoided)
        for partition in event.lost:
            self.lost_at.update(dict.fromkeys(self.placement[partition]))
        lost = set(event.lost)
        for partition, locations in zip(event.partitions, event.locations, strict=True):
            left = () if partition in lost else set(self.placement[partition]) - set(locations)
            self.stale.update((partition, location) for location in left)
            self.placement[partition] = tuple(locations)
        self._look_at_placement()
        self.stale = {pair for pair in self.stale if pair[0] not in lost}
        self.generation[event.lost] = self.version
        self.moved_in[event.lost + event.moved] = self.version
        self.rows[event.lost] = 0
        self.size_bytes[event.lost] = 0

    def info(self, partition: int) -> PartitionInfo:
        return PartitionInfo(
            partition,
            self.placement[partition],
            len(self.commits),
            int(self.rows[partition]),
            int(self.size_bytes[partition]),
            int(self.generation[partition]),
        )


def hash_of_sent(rows: Counts, routing: str) -> int:
    """The same for two attempts of a map that send as many rows to each partition.

    And, where both say so by their ``routing``, each row to the same one as the other attempt. Then
    some partitions of the one and the rest of the other are every row once.
    """
    return xxhash.xxh3_64_intdigest(rows.tobytes() + routing.encode())
