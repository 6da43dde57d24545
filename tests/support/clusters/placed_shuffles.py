"""A registry with a shuffle 'clicks', and shortcuts for its answers."""

from __future__ import annotations

from collections.abc import Callable

from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.registry import Registry
from tests.support.clusters.registries import TIMEOUT_S, Clock

FIRST = MapAttempt(0, 0, "first")
SECOND = MapAttempt(0, 1, "second")
THIRD = MapAttempt(0, 2, "third")
OTHER = MapAttempt(1, 0, "other")


def registry_with_clicks(
    replicas: int = 1,
    servers: str = "abc",
    partitions: int = 3,
    record: Callable[[AnyEvent], None] = lambda event: None,
    clock: Clock | None = None,
) -> Registry:
    """Return a registry; by default there is one partition on each of the servers a, b and c."""
    registry = Registry(clock or Clock(), TIMEOUT_S, record)
    for name in servers:
        registry.register_server(name)
    registry.put_shuffle("clicks", partitions, replicas)
    return registry


def placement(registry: Registry, shuffle_id: str = "clicks") -> list[tuple[str, ...]]:
    return registry.describe_shuffle(shuffle_id).places


def rows(registry: Registry) -> list[int]:
    return [info.rows for info in registry.partitions("clicks")[1]]


def counting(registry: Registry, partition: int) -> list[MapAttempt]:
    """Return the attempts whose blocks a reader gets from a partition."""
    _, (info,) = registry.partitions("clicks", partition)
    commits = registry.commits("clicks", 0)[: info.epoch]
    return [commit.source for commit in commits if commit.counts_for(info.generation)]
