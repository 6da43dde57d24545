"""Which data server holds which partition: a pure choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mrflight.errors import NoDataServersError


class IndexedPlacement(NamedTuple):
    """How a placement is sent and recorded: p is on ``locations[i]`` for i in ``placement[p]``."""

    locations: list[str]
    placement: list[list[int]]

    @classmethod
    def of(cls, placement: Sequence[Sequence[str]]) -> IndexedPlacement:
        """The locations are in their order."""
        locations = sorted({location for places in placement for location in places})
        index = {location: i for i, location in enumerate(locations)}
        return cls(locations, [[index[location] for location in places] for places in placement])

    @property
    def places(self) -> list[tuple[str, ...]]:
        """The locations of each partition."""
        return [tuple(self.locations[i] for i in at) for at in self.placement]


def place_partitions(
    partitions: int, load: Mapping[str, int], replicas: int = 1
) -> list[tuple[str, ...]]:
    """The locations of each partition, ``replicas`` different ones each.

    ``load`` is how many partitions each living server holds already. Servers
    are taken in turn, the least loaded first, so that of one shuffle no server
    gets two partitions more than another. NoDataServersError where there are
    fewer servers than replicas.
    """
    if len(load) < replicas:
        raise NoDataServersError(
            f"{len(load)} data servers are registered and {replicas} are needed; start more with "
            "'mrflight serve data --metadata LOCATION'"
        )
    turn = sorted(load, key=lambda location: (load[location], location))
    placement = []
    for partition in range(partitions):
        first = partition * replicas
        copies = [turn[(first + copy) % len(turn)] for copy in range(replicas)]
        lead = first // len(turn) % replicas  # readers ask the first, so they take turns as well
        placement.append((*copies[lead:], *copies[:lead]))
    return placement
