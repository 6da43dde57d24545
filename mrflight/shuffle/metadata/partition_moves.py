"""Moves the partitions of a data server that is about to stop to other servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from mrflight.shuffle.metadata.reassignment import choose_targets, find_sole_replicas, plan_move


class PartitionMoves:
    """The part of a `Registry` for partitions that are copied from one server to another.

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

    def plan(self, shuffle_id: str, origin: str) -> tuple[list[int], list[str]]:
        """Return the partitions that only ``origin`` holds, and a target for each.

        There are no targets if there is no other server.
        """
        with self._lock:
            self._expire()
            state = self._state.shuffle(shuffle_id)
            partitions = find_sole_replicas(state, origin, self._state.servers)
            load = self._state.available_load({*state.placement.avoided, origin})
            return partitions, choose_targets(state, partitions, load)

    def record(
        self, shuffle_id: str, moves: dict[int, str], origin: str, epoch: int, version: int
    ) -> None:
        """Record partitions that were copied from ``origin``, as of ``epoch`` and ``version``.

        ``moves`` has the new location of each. Raises PlacementChangedError if the shuffle has
        changed since.
        """
        with self._lock:
            state = self._state.shuffle(shuffle_id)
            available = self._state.available_servers(state.placement.avoided)
            self._cluster.apply(plan_move(state, moves, origin, available, epoch, version))
