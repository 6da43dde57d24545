"""What a metadata server knows: servers, shuffles, and which attempts won.

A state machine without sockets and without a clock of its own: time comes in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.errors import (
    ProtocolError,
    SchemaMismatchError,
    ShuffleExistsError,
    ShuffleNotFoundError,
)
from mrflight.ids import MAX_PARTITIONS, MapAttempt, check_attempt, check_shuffle_id
from mrflight.schemas import describe_difference
from mrflight.shuffle.placement import place_partitions


@dataclass
class _Server:
    last_seen_s: float
    stored_bytes: int = 0


@dataclass
class ShuffleState:
    """A shuffle: its placement, and the sum of what its winners promised."""

    id: str
    placement: list[tuple[str, ...]]
    rows: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    schema: pa.Schema | None = None
    winners: list[MapAttempt] = field(default_factory=list)
    """In order of their commits: an epoch is a length of this list."""
    winner_of: dict[int, MapAttempt] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionInfo:
    """Where a reader finds a partition, and what it was promised there."""

    partition: int
    locations: tuple[str, ...]
    epoch: int
    rows: int
    size_bytes: int


class Registry:
    """Servers, shuffles and winners. Safe for many threads."""

    def __init__(self, clock: Callable[[], float], server_timeout_s: float) -> None:
        self._clock = clock
        self._server_timeout_s = server_timeout_s
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}
        self._shuffles: dict[str, ShuffleState] = {}

    def register_server(self, location: str) -> None:
        """Take a data server into the placement of shuffles from now on."""
        with self._lock:
            load = self._load(all_servers=True)
            for other, server in list(self._servers.items()):
                if not self._lives(server) and load[other] == 0:
                    del self._servers[other]  # nobody asks for it any more
            self._servers[location] = _Server(self._clock())

    def unregister_server(self, location: str) -> None:
        """A data server stops: it gets no new partitions."""
        with self._lock:
            self._servers.pop(location, None)

    def heartbeat(
        self, location: str, held: list[str], stored_bytes: int
    ) -> tuple[bool, list[str]]:
        """Whether the server is registered, and which of its shuffles it must drop."""
        with self._lock:
            server = self._servers.get(location)
            if server is not None:
                server.last_seen_s = self._clock()
                server.stored_bytes = stored_bytes
            return server is not None, [name for name in held if name not in self._shuffles]

    def put_shuffle(self, shuffle_id: str, partitions: int, replicas: int = 1) -> ShuffleState:
        """Make a shuffle and place its partitions evenly over the living servers."""
        check_shuffle_id(shuffle_id)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ProtocolError(f"a shuffle has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        if replicas < 1:
            raise ProtocolError(f"a partition has at least 1 replica, not {replicas}")
        with self._lock:
            if shuffle_id in self._shuffles:
                raise ShuffleExistsError(
                    f"shuffle {shuffle_id!r} is there already; drop it, or take another name"
                )
            state = ShuffleState(
                shuffle_id,
                place_partitions(partitions, self._load(), replicas),
                rows=np.zeros(partitions, np.int64),
                size_bytes=np.zeros(partitions, np.int64),
            )
            self._shuffles[shuffle_id] = state
            return state

    def placement(self, shuffle_id: str) -> list[tuple[str, ...]]:
        """The locations of every partition of a shuffle."""
        with self._lock:
            return self._get(shuffle_id).placement

    def drop_shuffle(self, shuffle_id: str) -> list[str]:
        """Forget a shuffle; the servers that held it are to do the same."""
        with self._lock:
            placement = self._get(shuffle_id).placement
            del self._shuffles[shuffle_id]
            return sorted({location for locations in placement for location in locations})

    def commit_map(
        self,
        shuffle_id: str,
        source: MapAttempt,
        schema: pa.Schema,
        rows: list[int],
        sizes: list[int],
    ) -> MapAttempt:
        """Commit a map attempt; the first one wins, and the winner is returned.

        Raises SchemaMismatchError where the rows are of another schema than
        those that were committed before.
        """
        check_attempt(*source)
        with self._lock:
            state = self._get(shuffle_id)
            if source.map_id in state.winner_of:
                return state.winner_of[source.map_id]
            _check_counts(state, rows, sizes)
            self._agree_on_schema(state, source, schema)
            state.rows += np.array(rows, np.int64)
            state.size_bytes += np.array(sizes, np.int64)
            state.winner_of[source.map_id] = source
            state.winners.append(source)
            return source

    def winners(self, shuffle_id: str, since: int) -> list[MapAttempt]:
        """The committed attempts from position ``since`` on, in order of their commits."""
        with self._lock:
            return self._get(shuffle_id).winners[max(since, 0) :]

    def partitions(
        self, shuffle_id: str, only: int | None = None
    ) -> tuple[pa.Schema | None, list[PartitionInfo]]:
        """The schema, None before the first commit, and what a reader needs of each partition."""
        with self._lock:
            state = self._get(shuffle_id)
            count = len(state.placement)
            if only is not None and not 0 <= only < count:
                raise ProtocolError(f"shuffle {shuffle_id!r} has {count} partitions, no {only}")
            wanted = range(count) if only is None else (only,)
            epoch = len(state.winners)
            return state.schema, [
                PartitionInfo(
                    p, state.placement[p], epoch, int(state.rows[p]), int(state.size_bytes[p])
                )
                for p in wanted
            ]

    def servers(self) -> list[tuple[str, bool, int, int]]:
        """Of each server its location, whether it lives, its partitions and its bytes."""
        with self._lock:
            load = self._load(all_servers=True)
            return [
                (location, self._lives(server), load[location], server.stored_bytes)
                for location, server in sorted(self._servers.items())
            ]

    def shuffles(self) -> list[ShuffleState]:
        with self._lock:
            return list(self._shuffles.values())

    def _get(self, shuffle_id: str) -> ShuffleState:
        state = self._shuffles.get(check_shuffle_id(shuffle_id))
        if state is None:
            raise ShuffleNotFoundError(
                f"no shuffle {shuffle_id!r}: it was never made, or it has been dropped"
            )
        return state

    def _lives(self, server: _Server) -> bool:
        return self._clock() - server.last_seen_s <= self._server_timeout_s

    def _load(self, *, all_servers: bool = False) -> dict[str, int]:
        load = {
            location: 0
            for location, server in self._servers.items()
            if all_servers or self._lives(server)
        }
        for state in self._shuffles.values():
            for locations in state.placement:
                for location in locations:
                    if location in load:
                        load[location] += 1
        return load

    def _agree_on_schema(self, state: ShuffleState, source: MapAttempt, schema: pa.Schema) -> None:
        if len(schema) == 0:  # a map that wrote nothing
            return
        if state.schema is None:
            state.schema = schema
        elif difference := describe_difference(state.schema, schema):
            raise SchemaMismatchError(
                f"map {source.map_id} of shuffle {state.id!r} does not agree with the maps before "
                f"it: {difference}"
            )


def _check_counts(state: ShuffleState, rows: list[int], sizes: list[int]) -> None:
    count = len(state.placement)
    if len(rows) != count or len(sizes) != count:
        raise ProtocolError(f"shuffle {state.id!r} has {count} partitions, not {len(rows)}")
    if any(not 0 <= value < 2**48 for values in (rows, sizes) for value in values):
        raise ProtocolError("a commit counts rows and bytes from 0 to 2^48")
