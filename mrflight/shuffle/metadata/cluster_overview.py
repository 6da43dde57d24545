"""What people see of a cluster: its servers, its shuffles, and what is in their partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.events import Counts
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from mrflight.shuffle.wire.cluster_status import LostServer, ServerStatus, ShuffleStatus


class PartitionSizes(NamedTuple):
    """The committed rows and bytes of each partition of a shuffle."""

    id: str
    job: str
    maps: int
    rows: Counts
    size_bytes: Counts


class ClusterOverview:
    """The part of a `Registry` for its status, page and metrics.

    It uses the registry's lock, and is thread-safe. ``expire``, which is called with the lock held,
    removes what has timed out.
    """

    def __init__(
        self,
        state: ClusterState,
        cluster: JournaledCluster,
        lock: threading.Lock,
        expire: Callable[[], None],
    ) -> None:
        self._state = state
        self._cluster = cluster
        self._lock = lock
        self._expire = expire

    def servers(self) -> list[ServerStatus]:
        """Return the live servers, ordered by location."""
        with self._lock:
            self._expire()
            load = self._state.load(self._state.servers)
            return [
                ServerStatus(location, load[location], server.stored_bytes, server.use)
                for location, server in sorted(self._state.servers.items())
            ]

    def lost_servers(self) -> list[LostServer]:
        """Return the last servers that are gone, and why, the oldest first."""
        with self._lock:
            return list(self._cluster.lost)

    def shuffles(self) -> list[ShuffleStatus]:
        """Return the shuffles in the order in which they were created."""
        with self._lock:
            self._expire()
            return [
                ShuffleStatus(
                    state.id,
                    len(state.placement),
                    len(state.log.latest),
                    int(state.log.rows.sum()),
                    int(state.log.size_bytes.sum()),
                    state.job,
                )
                for state in self._state.shuffles.values()
            ]

    def partition_sizes(self, newest: int) -> list[PartitionSizes]:
        """Return what is in each partition of the newest shuffles, in the order of their creation.

        Nothing expires because of this: whoever looks at a cluster does not change it.
        """
        with self._lock:
            states = list(self._state.shuffles.values())[-newest:]
            return [
                PartitionSizes(
                    state.id,
                    state.job,
                    len(state.log.latest),
                    state.log.rows.copy(),
                    state.log.size_bytes.copy(),
                )
                for state in states
            ]
