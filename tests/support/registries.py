"""Registries as tests use them: a clock that is set, commits of few words, all that one knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.registry import Registry

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
    """Commit with ten bytes a row."""
    sizes = [10 * count for count in rows]
    return registry.commit_map(shuffle_id, source, SCHEMA, rows, sizes, version)


def health(registry: Registry, shuffle_id: str = "clicks") -> tuple[int, list[int]]:
    """The version of a placement, and the maps that are lost."""
    answer = registry.health(shuffle_id)
    return answer.version, answer.lost_maps


def resumed(events: Iterable[AnyEvent], clock: Clock) -> Registry:
    """A registry that knows no more than was recorded."""
    registry = Registry(clock, TIMEOUT_S)
    registry.resume(events)
    return registry


def knowledge(registry: Registry) -> Any:
    """All that a registry knows, but for times and what only heartbeats tell, to be compared.

    What is known of a server that is gone makes no difference: one that joins there is new.
    """
    servers = {
        location: (server.incarnation, server.is_draining)
        for location, server in registry._now.servers.items()
    }
    shuffles = [
        {
            field.name: _plain(getattr(state, field.name))
            for field in fields(state)
            if field.name not in ("renewed_s", "avoided", "stale")
        }
        | {
            "avoided": state.avoided & servers.keys(),
            "stale": {(p, location) for p, location in state.stale if location in servers},
        }
        for state in registry._now.shuffles.values()
    ]
    return servers, shuffles, registry._now.tables.by_name


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
