"""The placement of the partitions of a shuffle on data servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mrflight.errors import NoDataServersError
from mrflight.shuffle.metadata.events import PartitionsPlaced


class IndexedPlacement(NamedTuple):
    """A placement in its sent form: p is on ``locations[i]`` for i in ``placement[p]``."""

    locations: list[str]
    placement: list[list[int]]

    @classmethod
    def of(cls, placement: Sequence[Sequence[str]]) -> IndexedPlacement:
        """Return the indexed form of a placement, with its locations sorted."""
        locations = sorted({location for places in placement for location in places})
        index = {location: i for i, location in enumerate(locations)}
        return cls(locations, [[index[location] for location in places] for places in placement])


@dataclass
class Placement:
    """The locations of the partitions of one shuffle, and the rows that were lost with servers.

    The ``version`` grows by one with every change. The generation of a partition is the version in
    which it was placed without its rows, 0 if that never happened.
    """

    locations: list[tuple[str, ...]]
    """The locations of each partition. A partition without any is lost, and no server can take it.
    """
    version: int = 0
    avoided: set[str] = field(default_factory=set)
    """The locations where no partition of this shuffle is placed any more."""
    stale_replicas: set[tuple[int, str]] = field(default_factory=set)
    """Partitions and former locations of them that may still hold some of their blocks. A partition
    that is copied there would have these blocks twice."""
    lost_at: dict[str, None] = field(default_factory=dict)
    """The locations with which rows were lost, in that order."""
    generations: npt.NDArray[np.int64] = field(init=False)
    moved_in: npt.NDArray[np.int64] = field(init=False)
    """The version in which each partition last got locations that open writers do not write to."""
    indexed: IndexedPlacement = field(init=False)
    """Kept because every map asks for it: indexing 10,000 partitions takes 5 ms."""
    unplaced: list[int] = field(init=False)
    """The partitions without a location."""

    def __post_init__(self) -> None:
        self.generations = np.zeros(len(self.locations), np.int64)
        self.moved_in = np.zeros(len(self.locations), np.int64)
        self._index()

    def _index(self) -> None:
        self.indexed = IndexedPlacement.of(self.locations)
        self.unplaced = [p for p, places in enumerate(self.locations) if not places]

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self.locations)

    def servers(self) -> list[str]:
        """Return the locations that hold any partition, sorted."""
        return sorted({location for places in self.locations for location in places})

    def forget(self, location: str) -> None:
        """Note that the process at a location has ended, and its blocks with it."""
        self.avoided.discard(location)
        self.stale_replicas = {pair for pair in self.stale_replicas if pair[1] != location}

    def apply(self, event: PartitionsPlaced) -> None:
        """Apply a change of locations, and start a new version."""
        self.version += 1
        self.avoided.update(event.avoided)
        for partition in event.lost:
            self.lost_at.update(dict.fromkeys(self.locations[partition]))
        lost = set(event.lost)
        for partition, locations in zip(event.partitions, event.locations, strict=True):
            left = () if partition in lost else set(self.locations[partition]) - set(locations)
            self.stale_replicas.update((partition, location) for location in left)
            self.locations[partition] = tuple(locations)
        self._index()
        self.stale_replicas = {pair for pair in self.stale_replicas if pair[0] not in lost}
        self.generations[event.lost] = self.version
        self.moved_in[event.lost + event.moved] = self.version


def place_partitions(
    partitions: int, load: Mapping[str, int], replicas: int = 1
) -> list[tuple[str, ...]]:
    """Return the locations of each partition, ``replicas`` different ones each.

    ``load`` is the number of partitions that each available server holds already. The servers take
    turns, the least loaded first, so the numbers of partitions that two servers get of one shuffle
    differ by at most one. Raises NoDataServersError if there are fewer servers than replicas.
    """
    if len(load) < replicas:
        raise NoDataServersError(
            f"{len(load)} data servers are registered and {replicas} are needed; start more with "
            "'mrflight serve data --metadata LOCATION'"
        )
    servers = sorted(load, key=lambda location: (load[location], location))
    placement = []
    for partition in range(partitions):
        first = partition * replicas
        copies = [servers[(first + copy) % len(servers)] for copy in range(replicas)]
        lead = first // len(servers) % replicas  # readers ask the first, so that one rotates too
        placement.append((*copies[lead:], *copies[:lead]))
    return placement
