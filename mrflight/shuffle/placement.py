"""Which data server holds which partition: a pure choice."""

from __future__ import annotations

from collections.abc import Mapping

from mrflight.errors import NoDataServersError


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
