"""The registry of a metadata server: servers, shuffles and committed attempts.

A state machine without sockets and without a clock of its own. Every change is an event that is
recorded before it is applied, so a registry that replays the recorded events has the same state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa

from mrflight.errors import ProtocolError, ShuffleExistsError
from mrflight.ids import MapAttempt, check_attempt, same_token
from mrflight.shuffle.metadata.cluster_overview import ClusterOverview
from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.commit_leases import CommitLeases
from mrflight.shuffle.metadata.commit_log import hash_output
from mrflight.shuffle.metadata.commit_rules import (
    check_commit,
    check_not_lost,
    decode_schema,
    to_counts,
)
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    ServerDraining,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
)
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from mrflight.shuffle.metadata.partition_moves import PartitionMoves
from mrflight.shuffle.metadata.placement import IndexedPlacement, place_partitions
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.shuffle_rules import check_new_shuffle
from mrflight.shuffle.wire.cluster_status import NOTHING_HELD, StoreUse
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from mrflight.shuffle.wire.protocol import CommitMap, ShuffleDescription, ShuffleHealth

if TYPE_CHECKING:
    from mrflight.shuffle.metadata.event_logs import EventLogs


class Registry:
    """Servers, shuffles and commits, with a method for each action of the protocol. Thread-safe.

    ``record`` stores an event before it takes effect. If it raises an exception, the call that
    wanted the change raises it, and the change is not made.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        server_timeout_s: float,
        record: Callable[[AnyEvent], None] = lambda event: None,
    ) -> None:
        self._clock = clock
        self._server_timeout_s = server_timeout_s
        self._lock = threading.Lock()
        self._pending_heartbeats: dict[str, str] = {}
        """The incarnations of servers whose heartbeats wait for the lock, by location."""
        self._state = ClusterState()
        self._cluster = JournaledCluster(self._state, clock, record)
        self.tables = CommitLeases(self._state.tables, self._cluster, self._lock, clock)
        self.overview = ClusterOverview(self._state, self._cluster, self._lock, self._expire)
        self.moves = PartitionMoves(self._state, self._cluster, self._lock, self._expire)

    @cached_property
    def logs(self) -> EventLogs:
        """The event logs, which few clusters have."""
        from mrflight.shuffle.metadata.event_logs import EventLogs

        lease_s = self._server_timeout_s
        return EventLogs(self._state, self._cluster, self._lock, self._expire, lease_s)

    def resume(self, events: Iterable[AnyEvent]) -> None:
        """Replay the recorded events of another registry; servers and leases are fresh again."""
        with self._lock:
            self._cluster.replay(events)

    # Servers

    def register_server(self, location: str, incarnation: str = "", log_store: str = "") -> None:
        """Add a data server, so that partitions are placed on it.

        If another process was registered at this location, or with this folder of event logs, what
        that one held is lost.
        """
        with self._lock:
            known = self._state.servers.get(location)
            if known is not None and known.incarnation == incarnation:
                known.last_seen_s = self._clock()
                return
            if known is not None:
                self._cluster.remove_server(location, "another process was started there")
            former = self._state.log_stores().get(log_store)
            if former is not None:
                self._cluster.remove_server(former, f"its --log-dir is that of {location} now")
            self._cluster.apply(ServerJoined(location, incarnation, log_store))

    def drain_server(self, location: str) -> None:
        """Place no new partitions on a data server that is about to stop."""
        with self._lock:
            server = self._state.servers.get(location)
            if server is not None and not server.is_draining:
                self._cluster.apply(ServerDraining(location))

    def unregister_server(self, location: str, incarnation: str | None = None) -> None:
        """Remove a data server that has stopped; what it still held is lost.

        Another incarnation at its location is left alone; None stands for any.
        """
        with self._lock:
            known = self._state.servers.get(location)
            if known is not None and incarnation in (None, known.incarnation):
                self._cluster.remove_server(location, "it has stopped")

    def heartbeat(
        self,
        location: str,
        held: Sequence[str],
        stored_bytes: int,
        incarnation: str = "",
        tokens: Sequence[str] = (),
        use: StoreUse = NOTHING_HELD,
    ) -> tuple[bool, list[str]]:
        """Return whether the server is registered, and which of its shuffles it must drop.

        Those are the shuffles that were dropped, also if another one has their name by now, which
        ``tokens`` show. A heartbeat that waits for the lock, while the journal is written to a slow
        disk, counts from its arrival.
        """
        self._pending_heartbeats[location] = incarnation
        with self._lock:
            try:
                self._expire()
            finally:  # A server is alive even if the loss of another cannot be recorded.
                self._pending_heartbeats.pop(location, None)
                server = self._state.servers.get(location)
                is_known = server is not None and server.incarnation == incarnation
                if server is not None and is_known:
                    server.last_seen_s = self._clock()
                    server.stored_bytes, server.use = stored_bytes, use
            named = zip_longest(held, tokens[: len(held)], fillvalue="")
            return is_known, [name for name, token in named if not self._state.has(name, token)]

    def incarnation(self, location: str) -> str | None:
        """Return the incarnation of a live data server, or None if there is none."""
        with self._lock:
            self._expire()
            server = self._state.servers.get(location)
            return None if server is None else server.incarnation

    # Shuffles

    def put_shuffle(
        self,
        shuffle_id: str,
        partitions: int,
        replicas: int = 1,
        token: str = "",
        lease_s: float | None = None,
        job: str = "",
    ) -> list[tuple[str, ...]]:
        """Create a shuffle with its partitions spread evenly over the live servers.

        Returns the locations of each partition. A repeated request with the same ``token`` gets the
        same shuffle. The shuffle is dropped after ``lease_s`` without a request for its `health`.
        ``job`` is the name of its job, for the `overview`.
        """
        check_new_shuffle(shuffle_id, partitions, replicas, lease_s)
        with self._lock:
            self._expire()
            known = self._state.shuffles.get(shuffle_id)
            if known is not None:
                if token and same_token(known.token, token):
                    self._cluster.place_unplaced(known)
                    return known.placement.locations[:]
                raise ShuffleExistsError(
                    f"shuffle {shuffle_id!r} exists already; drop it, or choose another name"
                )
            locations = place_partitions(partitions, self._state.available_load(), replicas)
            indexed = IndexedPlacement.of(locations)
            self._cluster.apply(ShuffleCreated(shuffle_id, token, replicas, lease_s, *indexed, job))
            return locations

    def describe_shuffle(
        self, shuffle_id: str, map_id: int | None = None, token: str = ""
    ) -> ShuffleDescription:
        """Return where a map is written; without a ``map_id``, a map that was never committed.

        The placement is shared with other callers, so it must not be changed. Raises
        NoDataServersError if a partition is lost and no server is available for it.
        """
        with self._lock:
            self._expire()
            state = self._state.shuffle(shuffle_id, token)
            self._cluster.place_unplaced(state)
            return state.description(map_id)

    def drop_shuffle(self, shuffle_id: str, token: str = "") -> list[str]:
        """Drop a shuffle; return the locations of the servers that must drop it as well."""
        with self._lock:
            locations = self._state.shuffle(shuffle_id, token).placement.servers()
            self._cluster.apply(ShuffleDropped(shuffle_id))
            return locations

    def health(self, shuffle_id: str, token: str = "") -> ShuffleHealth:
        """Return the health of a shuffle, and renew its lease."""
        with self._lock:
            self._expire()
            state = self._state.shuffle(shuffle_id, token)
            state.renewed_s = self._clock()
            return state.health()

    # Maps

    def commit_map(self, commit: CommitMap) -> MapAttempt:
        """Commit a map attempt; return the attempt that counts for this map.

        That is the first one to commit, or the first one after some of its partitions were lost.
        ``commit.rows`` has the rows of all partitions, even if only lost partitions were sent.
        Raises SchemaMismatchError if earlier commits have another schema,
        InconsistentMapOutputError if an earlier commit of this map has other rows, and
        PlacementChangedError if partitions were moved while the attempt was written.
        """
        attempt = check_attempt(commit.map_id, commit.attempt, commit.writer)
        schema = decode_schema(commit.schema)
        with self._lock:
            state = self._state.shuffle(commit.id, commit.token)
            if not 0 <= commit.version <= state.placement.version:
                raise ProtocolError(f"shuffle {commit.id!r} has no version {commit.version}")
            committed = state.committed_attempt(attempt, commit.version)
            if committed is not None:
                return committed
            rows, sizes = to_counts(state, commit.rows), to_counts(state, commit.size_bytes)
            check_commit(state, commit, schema, rows)
            for location in commit.without:
                self._cluster.recover(state, Loss(location))
            self._cluster.apply(state.commit_event(commit, attempt, rows, sizes))
            return attempt

    def has_same_output(self, commit: CommitMap) -> bool:
        """Return whether the map was first committed with the same rows and ``routing``."""
        with self._lock:
            state = self._state.shuffle(commit.id)
            output_hash = hash_output(to_counts(state, commit.rows), commit.routing)
            return state.log.output_hashes.get(commit.map_id) == output_hash

    def commits(self, shuffle_id: str, since: int, token: str = "") -> list[MapCommit]:
        """Return the commits from position ``since`` on, in their order."""
        with self._lock:
            return self._state.shuffle(shuffle_id, token).log.commits[max(since, 0) :]

    def partition_count(self, key: str) -> int:
        """Return the partitions of the shuffle ``<id>:<token>``; 0 if there is none."""
        shuffle_id, _, token = key.partition(":")
        with self._lock:
            state = self._state.shuffles.get(shuffle_id)
            if state is None or not same_token(token, state.token):
                return 0
            return len(state.placement)

    # Partitions

    def partitions(
        self, shuffle_id: str, only: int | None = None, token: str = ""
    ) -> tuple[pa.Schema | None, list[PartitionInfo]]:
        """Return the schema, None before the first commit, and what a reader needs per partition.

        Raises MapOutputLostError if a committed map must be written again for one of them, and
        NoDataServersError if no server is available for a lost partition.
        """
        with self._lock:
            self._expire()
            state = self._state.shuffle(shuffle_id, token)
            self._cluster.place_unplaced(state)
            count = len(state.placement)
            if only is not None and not 0 <= only < count:
                raise ProtocolError(f"shuffle {shuffle_id!r} has {count} partitions, no {only}")
            requested = range(count) if only is None else (only,)
            check_not_lost(state, requested)
            return state.log.schema, [state.info(partition) for partition in requested]

    def report_loss(self, shuffle_id: str, loss: Loss, token: str = "") -> bool:
        """Recover from the loss of what a location holds; return whether anything was to be done.

        Replicas are used instead. Partitions without a replica are placed elsewhere, and their rows
        are lost.
        """
        with self._lock:
            self._expire()
            state = self._state.shuffle(shuffle_id, token)
            return self._cluster.recover(state, loss)

    def _expire(self) -> None:
        """Remove what has timed out; the caller holds the lock."""
        self._cluster.expire(self._server_timeout_s, self._pending_heartbeats)
