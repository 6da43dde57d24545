"""Helpers for tests of registries: a clock, short commits, and the whole state for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.commit_log import CommitLog
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.placement import Placement
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.metadata.shuffle_state import ShuffleState
from mrflight.shuffle.wire.protocol import CommitMap

TIMEOUT_S = 10
SCHEMA = pa.schema({"url": pa.string()})
OTHER_SCHEMA = pa.schema({"url": pa.int64()})


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def commit(
    registry: Registry,
    source: MapAttempt,
    rows: list[int],
    version: int = 0,
    shuffle_id: str = "clicks",
) -> MapAttempt:
    """Commit a map attempt with ten bytes per row."""
    return registry.commit_map(commit_message(source, rows, version, shuffle_id))


def commit_message(
    source: MapAttempt,
    rows: list[int],
    version: int = 0,
    shuffle_id: str = "clicks",
    schema: pa.Schema = SCHEMA,
) -> CommitMap:
    """Return the request that commits an attempt with ten bytes per row."""
    return CommitMap(
        id=shuffle_id,
        map_id=source.map_id,
        attempt=source.attempt,
        writer=source.writer,
        schema=schema.serialize().to_pybytes(),
        rows=rows,
        size_bytes=[10 * count for count in rows],
        version=version,
    )


def health(registry: Registry, shuffle_id: str = "clicks") -> tuple[int, list[int]]:
    """Return the version of the placement and the lost maps."""
    answer = registry.health(shuffle_id)
    return answer.version, answer.lost_maps


def resumed(events: Iterable[AnyEvent], clock: Clock) -> Registry:
    """Return a registry that has replayed these events."""
    registry = Registry(clock, TIMEOUT_S)
    registry.resume(events)
    return registry


def knowledge(registry: Registry) -> Any:
    """Return the state of a registry for comparison.

    Times and what only heartbeats report are left out. So is what a shuffle remembers of servers
    that are gone, because a server that joins there is new.
    """
    servers = {
        location: (server.incarnation, server.is_draining)
        for location, server in registry._state.servers.items()
    }
    shuffles = [
        _plain(state)
        | {
            "avoided": state.placement.avoided & servers.keys(),
            "stale_replicas": {
                (partition, location)
                for partition, location in state.placement.stale_replicas
                if location in servers
            },
        }
        for state in registry._state.shuffles.values()
    ]
    return servers, shuffles, registry._state.tables.by_name


def _plain(value: Any) -> Any:
    """Return a state as values that can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, ShuffleState | Placement | CommitLog):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in fields(value)
            if field.name not in ("renewed_s", "avoided", "stale_replicas")
        }
    return value
