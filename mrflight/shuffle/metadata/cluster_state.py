"""What events make of a cluster: its servers and its shuffles. Applies, and decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from mrflight.errors import ShuffleNotFoundError
from mrflight.ids import check_shuffle_id
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    CommitLeaseEnded,
    CommitLeaseGiven,
    MapCommitted,
    MapsCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleDropped,
    ShuffleMade,
    VersionForgotten,
    VersionRecorded,
)
from mrflight.shuffle.metadata.lease_state import TableStates
from mrflight.shuffle.metadata.placement import place_partitions
from mrflight.shuffle.metadata.shuffle_state import ShuffleState


@dataclass
class ServerState:
    """A data server that takes part."""

    incarnation: str
    last_seen_s: float
    stored_bytes: int = 0
    is_draining: bool = False


@dataclass
class ClusterState:
    """The same for whoever applies the same events, but for the times."""

    servers: dict[str, ServerState] = field(default_factory=dict)
    """By their locations."""
    shuffles: dict[str, ShuffleState] = field(default_factory=dict)
    """By their names, in the order in which they were made."""
    tables: TableStates = field(default_factory=TableStates)

    def apply(self, event: AnyEvent, now_s: float) -> None:
        """Take in what has happened; servers and leases are as fresh as ``now_s``."""
        match event:
            case ServerJoined():
                self._forget(event.location)
                self.servers[event.location] = ServerState(event.incarnation, now_s)
            case ServerDraining():
                self.servers[event.location].is_draining = True
            case ServerGone():
                self._forget(event.location)
            case ShuffleMade():
                self.shuffles[event.id] = ShuffleState.made(event, now_s)
            case ShuffleDropped():
                del self.shuffles[event.id]
            case MapCommitted():
                self.shuffles[event.id].apply_commit(event)
            case MapsCommitted():
                self.shuffles[event.id].apply_commits(event)
            case PartitionsPlaced():
                self.shuffles[event.id].apply_placed(event)
            case CommitLeaseGiven() | CommitLeaseEnded() | VersionRecorded() | VersionForgotten():
                self.tables.apply(event, now_s)

    def _forget(self, location: str) -> None:
        """Another process that joins there has nothing of this one's."""
        self.servers.pop(location, None)
        for state in self.shuffles.values():
            state.forget(location)

    def shuffle(self, shuffle_id: str, token: str = "") -> ShuffleState:
        """The shuffle of this name, and with a token no other one than it was made with."""
        state = self.shuffles.get(check_shuffle_id(shuffle_id))
        if state is None:
            raise ShuffleNotFoundError(
                f"no shuffle {shuffle_id!r}: it was never made, or it has been dropped"
            )
        if token and token != state.token:
            raise ShuffleNotFoundError(
                f"shuffle {shuffle_id!r} has been dropped, and another one has its name now"
            )
        return state

    def has(self, shuffle_id: str, token: str) -> bool:
        """Whether `shuffle` finds it; for any name."""
        state = self.shuffles.get(shuffle_id)
        return state is not None and token in ("", state.token)

    def place(self, state: ShuffleState, count: int, avoided: Collection[str]) -> list[list[str]]:
        """Where so many partitions go; nowhere, where there is no server."""
        load = self.open_load(avoided)
        if not load:
            return [[] for _ in range(count)]
        replicas = min(state.replicas, len(load))
        return [list(places) for places in place_partitions(count, load, replicas)]

    def open_servers(self, avoided: Collection[str] = ()) -> list[str]:
        """The locations that partitions may be placed on."""
        return [
            at
            for at, server in self.servers.items()
            if not server.is_draining and at not in avoided
        ]

    def open_load(self, avoided: Collection[str] = ()) -> dict[str, int]:
        """The load of the locations that partitions may be placed on."""
        return self.load(self.open_servers(avoided))

    def load(self, servers: Iterable[str]) -> dict[str, int]:
        """How many partitions, replicas counted, each of these servers has."""
        load = dict.fromkeys(servers, 0)
        for state in self.shuffles.values():
            for locations in state.placement:
                for location in locations:
                    if location in load:
                        load[location] += 1
        return load
