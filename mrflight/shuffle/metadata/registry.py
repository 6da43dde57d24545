"""What a metadata server knows: servers, shuffles, and which attempts count.

A state machine without sockets and without a clock of its own: time comes in. Whatever changes it
is an event, recorded before it is applied, so that a registry that is given the recorded events
knows the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa

from mrflight.errors import ProtocolError, ShuffleExistsError
from mrflight.ids import MAX_PARTITIONS, MapAttempt, check_attempt, check_shuffle_id
from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.commit_leases import TableFences
from mrflight.shuffle.metadata.commit_rules import check_commit, check_not_lost, checked_counts
from mrflight.shuffle.metadata.counts import packed
from mrflight.shuffle.metadata.event_log import RecordedChanges
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    MapCommitted,
    ServerDraining,
    ServerJoined,
    ShuffleDropped,
    ShuffleMade,
)
from mrflight.shuffle.metadata.placement import IndexedPlacement, place_partitions
from mrflight.shuffle.metadata.reassignment import choose_targets, held_alone, plan_move
from mrflight.shuffle.metadata.shuffle_state import hash_of_sent
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from mrflight.shuffle.wire.protocol import ServerStatus, ShuffleHealth, ShuffleStatus


class WriteTarget(NamedTuple):
    """Where a map's rows go now: the locations of each partition, and those that want them."""

    placement: IndexedPlacement
    """Not to be changed: others get the same."""
    version: int
    wanted: list[int]
    token: str


MAX_SHUFFLE_LEASE_S = 24 * 3600.0
"""Jobs renew leases of a minute every few seconds. A client that is gone for a day does not come
back, and a longer lease would keep the memory of its shuffle from others."""


class Registry:
    """Servers, shuffles and commits. Safe for many threads.

    ``record`` keeps an event before it takes effect; what it raises is raised by the call that
    wanted the change, of which nothing remains.
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
        self._knocking: dict[str, str] = {}
        """The incarnations of servers whose heartbeats wait for the lock, by their locations."""
        self._now = ClusterState()
        self._changes = RecordedChanges(self._now, clock, record)
        self.tables = TableFences(self._now.tables, self._changes, self._lock, clock)

    def resume(self, events: Iterable[AnyEvent]) -> None:
        """Know what the registry knew that recorded these; servers and leases get new time."""
        with self._lock:
            self._changes.resume(events)

    # Servers

    def register_server(self, location: str, incarnation: str = "") -> None:
        """Take a data server into the placement of shuffles from now on.

        What an earlier one at this location held is lost.
        """
        with self._lock:
            known = self._now.servers.get(location)
            if known is not None and known.incarnation == incarnation:
                known.last_seen_s = self._clock()
                return
            if known is not None:
                self._changes.lose_server(location, "another one was started in its place")
            self._changes.happen(ServerJoined(location, incarnation))

    def drain_server(self, location: str) -> None:
        """A data server is about to stop: it gets no new partitions."""
        with self._lock:
            server = self._now.servers.get(location)
            if server is not None and not server.is_draining:
                self._changes.happen(ServerDraining(location))

    def unregister_server(self, location: str, incarnation: str | None = None) -> None:
        """A data server has stopped, this one or whichever; what it still held is lost."""
        with self._lock:
            known = self._now.servers.get(location)
            if known is not None and incarnation in (None, known.incarnation):
                self._changes.lose_server(location, "it has ended")

    def heartbeat(
        self,
        location: str,
        held: Sequence[str],
        stored_bytes: int,
        incarnation: str = "",
        tokens: Sequence[str] = (),
    ) -> tuple[bool, list[str]]:
        """Whether the server is registered, and which of its shuffles it must drop.

        Those are no more, or are others than ours of their names by their ``tokens``.
        Who waits for the lock, behind a slow disk of the journal, is there all the time.
        """
        self._knocking[location] = incarnation
        with self._lock:
            try:
                self._expire()
            finally:  # that others cannot be recorded as gone is no reason to give up this one
                self._knocking.pop(location, None)
                server = self._now.servers.get(location)
                is_known = server is not None and server.incarnation == incarnation
                if server is not None and is_known:
                    server.last_seen_s = self._clock()
                    server.stored_bytes = stored_bytes
            named = zip_longest(held, tokens[: len(held)], fillvalue="")
            return is_known, [name for name, token in named if not self._now.has(name, token)]

    def incarnation(self, location: str) -> str | None:
        """Of a data server that has been heard of lately."""
        with self._lock:
            self._expire()
            server = self._now.servers.get(location)
            return None if server is None else server.incarnation

    def servers(self) -> list[ServerStatus]:
        """Those that live, in the order of their locations."""
        with self._lock:
            self._expire()
            load = self._now.load(self._now.servers)
            return [
                ServerStatus(location, load[location], server.stored_bytes)
                for location, server in sorted(self._now.servers.items())
            ]

    # Shuffles

    def put_shuffle(
        self,
        shuffle_id: str,
        partitions: int,
        replicas: int = 1,
        token: str = "",
        lease_s: float | None = None,
    ) -> list[tuple[str, ...]]:
        """Make a shuffle and place its partitions evenly over the living servers: where they are.

        Who asks twice with the same ``token`` gets the same shuffle. It is dropped when nobody asks
        for its `health` for ``lease_s``.
        """
        check_shuffle_id(shuffle_id)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ProtocolError(f"a shuffle has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        if replicas < 1:
            raise ProtocolError(f"a partition has at least 1 replica, not {replicas}")
        if lease_s is not None and not 0 < lease_s <= MAX_SHUFFLE_LEASE_S:
            raise ProtocolError(
                f"the lease of a shuffle must be above 0 and up to {MAX_SHUFFLE_LEASE_S:g} s, "
                f"not {lease_s:g} s"
            )
        with self._lock:
            self._expire()
            known = self._now.shuffles.get(shuffle_id)
            if known is not None:
                if token and known.token == token:
                    self._changes.place_homeless(known)
                    return known.placement[:]
                raise ShuffleExistsError(
                    f"shuffle {shuffle_id!r} is there already; drop it, or take another name"
                )
            placement = place_partitions(partitions, self._now.open_load(), replicas)
            indexed = IndexedPlacement.of(placement)
            self._changes.happen(ShuffleMade(shuffle_id, token, replicas, lease_s, *indexed))
            return placement

    def target(self, shuffle_id: str, map_id: int | None = None, token: str = "") -> WriteTarget:
        """Where a map is to be written, or one that nobody has written yet.

        NoDataServersError where a partition is lost and there is no server for it.
        """
        with self._lock:
            self._expire()
            state = self._now.shuffle(shuffle_id, token)
            self._changes.place_homeless(state)
            wanted = list(range(len(state.placement)))
            if map_id is not None:
                wanted = state.wanted(map_id)
            return WriteTarget(state.indexed, state.version, wanted, state.token)

    def drop_shuffle(self, shuffle_id: str, token: str = "") -> list[str]:
        """Forget a shuffle; the servers that held it are to do the same."""
        with self._lock:
            locations = self._now.shuffle(shuffle_id, token).locations()
            self._changes.happen(ShuffleDropped(shuffle_id))
            return locations

    def shuffles(self) -> list[ShuffleStatus]:
        """In the order in which they were made."""
        with self._lock:
            self._expire()
            return [
                ShuffleStatus(
                    state.id,
                    len(state.placement),
                    len(state.last_of),
                    int(state.rows.sum()),
                    int(state.size_bytes.sum()),
                )
                for state in self._now.shuffles.values()
            ]

    def health(self, shuffle_id: str, token: str = "") -> ShuffleHealth:
        """How a shuffle is; renews its lease."""
        with self._lock:
            self._expire()
            state = self._now.shuffle(shuffle_id, token)
            state.renewed_s = self._clock()
            size_bytes = int(state.size_bytes.sum())
            return ShuffleHealth(
                state.version,
                state.lost_maps(),
                size_bytes,
                list(state.lost_at),
                len(state.last_of),
            )

    # Maps

    def commit_map(
        self,
        shuffle_id: str,
        source: MapAttempt,
        schema: pa.Schema,
        rows: list[int],
        sizes: list[int],
        version: int = 0,
        without: Iterable[str] = (),
        token: str = "",
        routing: str = "",
    ) -> MapAttempt:
        """Commit a map attempt that was written to a ``version`` of the placement.

        It was not written to the locations ``without``, of which the shuffle has replicas.
        Returns who counts for this map: the first, or the first that was written after partitions
        were lost. ``rows`` are those of all partitions, also where only lost ones were sent, and
        ``routing`` is a hash of where each of them went.
        Raises SchemaMismatchError where the rows are of another schema than
        those that were committed before, InconsistentMapOutputError where a map that was
        committed has other rows now, PlacementChangedError.
        """
        check_attempt(*source)
        with self._lock:
            state = self._now.shuffle(shuffle_id, token)
            if not 0 <= version <= state.version:
                raise ProtocolError(f"shuffle {shuffle_id!r} has no version {version}")
            winner = state.winner(source, version)
            if winner is not None:
                return winner
            counted, stored = checked_counts(state, rows), checked_counts(state, sizes)
            check_commit(state, source, schema, counted, version, routing)
            for location in without:
                self._changes.lose(state, location)
            encoded = schema.serialize().to_pybytes()
            counts = packed(counted), packed(stored)
            self._changes.happen(
                MapCommitted(shuffle_id, *source, version, encoded, *counts, routing)
            )
            return source

    def has_sent(self, shuffle_id: str, map_id: int, rows: list[int], routing: str) -> bool:
        """Whether a committed map sent so many rows to each partition, and of this ``routing``."""
        with self._lock:
            state = self._now.shuffle(shuffle_id)
            return state.sent_by.get(map_id) == hash_of_sent(checked_counts(state, rows), routing)

    def commits(self, shuffle_id: str, since: int) -> list[MapCommit]:
        """The committed attempts from position ``since`` on, in order of their commits."""
        with self._lock:
            return self._now.shuffle(shuffle_id).commits[max(since, 0) :]

    # Partitions

    def partitions(
        self, shuffle_id: str, only: int | None = None
    ) -> tuple[pa.Schema | None, list[PartitionInfo]]:
        """The schema, None before the first commit, and what a reader needs of each partition.

        Raises MapOutputLostError where a map that was committed has to be written again for them,
        NoDataServersError where there is no server to write to.
        """
        with self._lock:
            self._expire()
            state = self._now.shuffle(shuffle_id)
            self._changes.place_homeless(state)
            count = len(state.placement)
            if only is not None and not 0 <= only < count:
                raise ProtocolError(f"shuffle {shuffle_id!r} has {count} partitions, no {only}")
            wanted = range(count) if only is None else (only,)
            check_not_lost(state, wanted)
            return state.schema, [state.info(partition) for partition in wanted]

    def lose(
        self,
        shuffle_id: str,
        location: str,
        partitions: list[int] | None = None,
        *,
        for_good: bool = True,
        token: str = "",
    ) -> bool:
        """What a location held of a shuffle cannot be used; whether that is news.

        Of all its partitions there, or of some. Replicas are used instead; without any the
        partitions are placed anew and their rows are lost. ``for_good``: nothing of this shuffle
        is placed there again, unless a server joins there.
        """
        with self._lock:
            self._expire()
            state = self._now.shuffle(shuffle_id, token)
            return self._changes.lose(state, location, partitions, for_good=for_good)

    def targets(self, shuffle_id: str, origin: str) -> tuple[list[int], list[str]]:
        """The partitions that only ``origin`` holds, and where each could go.

        Nowhere, where there is no other server: then there are no targets.
        """
        with self._lock:
            self._expire()
            state = self._now.shuffle(shuffle_id)
            alone = held_alone(state, origin, self._now.servers)
            load = self._now.open_load({*state.avoided, origin})
            return alone, choose_targets(state, alone, load)

    def move(
        self, shuffle_id: str, moves: dict[int, str], origin: str, epoch: int, version: int
    ) -> None:
        """Partitions have been copied from ``origin``, as they were at ``epoch`` and ``version``.

        ``moves`` has the new location of each. PlacementChangedError where they are not the same
        any more.
        """
        with self._lock:
            state = self._now.shuffle(shuffle_id)
            open_now = self._now.open_servers(state.avoided)
            self._changes.happen(plan_move(state, moves, origin, open_now, epoch, version))

    def _expire(self) -> None:
        """With the lock held, before anybody is told what there is."""
        self._changes.expire(self._server_timeout_s, self._knocking)
