"""The state of a cluster: its servers, its shuffles, and the leases and versions of its tables.

Events are applied here without any decision, so applying the same events gives the same state. Only
the times differ: servers and leases are as fresh as the time at which an event is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from mrflight.errors import ShuffleNotFoundError
from mrflight.ids import check_shuffle_id, same_token
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    CommitLeaseEnded,
    CommitLeaseGranted,
    CountsRestored,
    LogCreated,
    LogDropped,
    LogPlaced,
    MapCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
    VersionForgotten,
    VersionRecorded,
)
from mrflight.shuffle.metadata.log_state import EventLogState
from mrflight.shuffle.metadata.placement import place_partitions
from mrflight.shuffle.metadata.shuffle_state import ShuffleState
from mrflight.shuffle.wire.cluster_status import NOTHING_HELD, StoreUse
from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS, VersionRecord


@dataclass
class ServerState:
    """A registered data server."""

    incarnation: str
    last_seen_s: float
    stored_bytes: int = 0
    use: StoreUse = NOTHING_HELD
    is_draining: bool = False
    log_store: str = ""
    """The id of its folder of event logs; empty if it keeps none."""


@dataclass
class Lease:
    """The lease of one job to commit to one table."""

    number: int
    holder: str
    lease_s: float
    renewed_s: float

    def has_expired(self, now_s: float) -> bool:
        """Return whether the lease was not renewed in time."""
        return now_s - self.renewed_s > self.lease_s


@dataclass
class TableState:
    """The lease of a table and its last versions."""

    lease: Lease | None = None
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    """The last `MAX_VERSIONS` that were recorded, in that order."""


@dataclass
class TableStates:
    """The tables that have a lease or a recorded version."""

    by_name: dict[str, TableState] = field(default_factory=dict)
    last_number: int = 0
    """The highest lease number of any table. A table that is forgotten does not lower it."""

    def apply(
        self,
        event: CommitLeaseGranted | CommitLeaseEnded | VersionRecorded | VersionForgotten,
        now_s: float,
    ) -> None:
        """Apply an event of a table, and forget the table if nothing is left of it."""
        state = self.by_name.setdefault(event.table, TableState())
        match event:
            case CommitLeaseGranted():
                self.last_number = max(self.last_number, event.number)
                state.lease = Lease(event.number, event.holder, event.lease_s, now_s)
            case CommitLeaseEnded():
                self.last_number = max(self.last_number, event.number)
                if state.lease is not None and state.lease.number == event.number:
                    state.lease = None
            case VersionRecorded():
                state.versions.pop(event.version, None)
                state.versions[event.version] = VersionRecord(
                    event.version, event.digest, event.job
                )
                for oldest in list(state.versions)[:-MAX_VERSIONS]:
                    del state.versions[oldest]
            case VersionForgotten():
                state.versions.pop(event.version, None)
        if state.lease is None and not state.versions:
            del self.by_name[event.table]


@dataclass
class ClusterState:
    """The servers, shuffles and tables of a cluster."""

    servers: dict[str, ServerState] = field(default_factory=dict)
    """The registered servers by location."""
    shuffles: dict[str, ShuffleState] = field(default_factory=dict)
    """The shuffles by id, in the order in which they were created."""
    tables: TableStates = field(default_factory=TableStates)
    logs: dict[str, EventLogState] = field(default_factory=dict)
    """The event logs by name."""

    def apply(self, event: AnyEvent, now_s: float) -> None:
        """Apply an event; what it creates is as fresh as ``now_s``."""
        match event:
            case ServerJoined():
                self._forget(event.location)
                self.servers[event.location] = ServerState(
                    event.incarnation, now_s, log_store=event.log_store
                )
            case ServerDraining():
                self.servers[event.location].is_draining = True
            case ServerGone():
                self._forget(event.location)
            case ShuffleCreated():
                self.shuffles[event.id] = ShuffleState.create(event, now_s)
            case ShuffleDropped():
                del self.shuffles[event.id]
            case MapCommitted():
                self.shuffles[event.id].apply_commit(event)
            case CountsRestored():
                self.shuffles[event.id].restore_counts(event)
            case PartitionsPlaced():
                self.shuffles[event.id].apply_placed(event)
            case CommitLeaseGranted() | CommitLeaseEnded() | VersionRecorded() | VersionForgotten():
                self.tables.apply(event, now_s)
            case LogCreated():
                self.logs[event.name] = EventLogState.create(event)
            case LogPlaced():
                self.logs[event.name].apply(event)
            case LogDropped():
                del self.logs[event.name]

    def _forget(self, location: str) -> None:
        """Remove a server, so that another process can join at its location without its blocks."""
        self.servers.pop(location, None)
        for state in self.shuffles.values():
            state.placement.forget(location)

    def shuffle(self, shuffle_id: str, token: str = "") -> ShuffleState:
        """Return a shuffle; raise ShuffleNotFoundError if there is none with this id and token.

        An empty token stands for whichever shuffle has this id now.
        """
        state = self.shuffles.get(check_shuffle_id(shuffle_id))
        if state is None:
            raise ShuffleNotFoundError(
                f"no shuffle {shuffle_id!r}: it was never created, or it has been dropped"
            )
        if token and not same_token(token, state.token):
            raise ShuffleNotFoundError(
                f"shuffle {shuffle_id!r} has been dropped, and another one has its name now"
            )
        return state

    def has(self, shuffle_id: str, token: str) -> bool:
        """Return whether `shuffle` finds one; the id may be any string."""
        state = self.shuffles.get(shuffle_id)
        return state is not None and (not token or same_token(token, state.token))

    def log_stores(self, *, only_available: bool = False) -> dict[str, str]:
        """Return the locations of the servers that keep event logs, by the ids of their folders."""
        return {
            server.log_store: location
            for location, server in self.servers.items()
            if server.log_store and not (only_available and server.is_draining)
        }

    def choose_locations(
        self, state: ShuffleState, count: int, avoided: Collection[str]
    ) -> list[list[str]]:
        """Choose the locations of ``count`` partitions; all are empty if no server is available."""
        load = self.available_load(avoided)
        if not load:
            return [[] for _ in range(count)]
        replicas = min(state.replicas, len(load))
        return [list(places) for places in place_partitions(count, load, replicas)]

    def available_servers(self, avoided: Collection[str] = ()) -> list[str]:
        """Return the locations that partitions may be placed on."""
        return [
            at
            for at, server in self.servers.items()
            if not server.is_draining and at not in avoided
        ]

    def available_load(self, avoided: Collection[str] = ()) -> dict[str, int]:
        """Return the load of the locations that partitions may be placed on."""
        return self.load(self.available_servers(avoided))

    def load(self, servers: Iterable[str]) -> dict[str, int]:
        """Return how many partitions each of these servers holds, including replicas."""
        load = dict.fromkeys(servers, 0)
        for state in self.shuffles.values():
            for locations in state.placement.locations:
                for location in locations:
                    if location in load:
                        load[location] += 1
        return load
