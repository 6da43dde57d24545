"""Event logs: which data servers hold a log, and which of them owns it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mrflight.errors import (
    EventLogExistsError,
    EventLogNotFoundError,
    LogOwnerChangedError,
    NoDataServersError,
)
from mrflight.ids import ShuffleKey, check_secret, check_shuffle_id, new_token, same_token
from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.events import LogCreated, LogDropped, LogPlaced
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from mrflight.shuffle.metadata.log_state import EventLogState
from mrflight.shuffle.wire.log_protocol import (
    ChangeLogMembers,
    CreateLog,
    LogMember,
    LogName,
    LogPlacement,
)
from mrflight.shuffle.wire.log_rights import ALL_RIGHTS, LogRight, check_rights, log_id


class EventLogs:
    """The part of a `Registry` that serves event logs, with a method for each of their actions.

    It uses the registry's lock, and is thread-safe. ``expire`` removes servers that are lost.
    """

    def __init__(
        self,
        state: ClusterState,
        cluster: JournaledCluster,
        lock: threading.Lock,
        expire: Callable[[], None],
        lease_s: float,
    ) -> None:
        self._state = state
        self._cluster = cluster
        self._lock = lock
        self._expire = expire
        self._lease_s = lease_s

    def create(self, request: CreateLog) -> LogPlacement:
        """Place a new log on the servers with the fewest; the first of them owns it.

        Raises EventLogExistsError, NoDataServersError, and ProtocolError for a token that was
        derived from a secret. A repeated request with the same token gets the same log.
        """
        check_shuffle_id(request.name)
        check_secret(request.token)
        with self._lock:
            self._expire()
            known = self._state.logs.get(request.name)
            if known is not None:
                if request.token and same_token(request.token, known.token):
                    return self._placement(known)
                raise EventLogExistsError(
                    f"event log {request.name!r} exists already; append to it, drop it, or choose "
                    "another name"
                )
            stores = self._spares(())
            if len(stores) < request.replicas:
                raise NoDataServersError(
                    f"event log {request.name!r} needs {request.replicas} data servers that keep "
                    f"event logs, and there are {len(stores)}; start more with 'mrflight serve "
                    "data --metadata LOCATION --log-dir FOLDER'"
                )
            token = request.token or new_token()
            members = [member.store for member in stores[: request.replicas]]
            self._cluster.apply(LogCreated(request.name, token, request.replicas, members))
            return self._placement(self._state.logs[request.name])

    def describe(self, request: LogName) -> LogPlacement:
        """Return where a log is; raise EventLogNotFoundError if there is none."""
        with self._lock:
            self._expire()
            state, rights = self._find(request)
            return self._placement(state, request.token, rights)

    def drop(self, request: LogName) -> LogPlacement:
        """Drop a log; return where it was, so that its files can be deleted there.

        The answer has the secret of the log, which is of no use any more but for that.
        """
        with self._lock:
            state, _ = self._find(request, LogRight.DROP)
            placement = self._placement(state)
            self._cluster.apply(LogDropped(request.name))
            return placement

    def change_members(self, request: ChangeLogMembers) -> LogPlacement:
        """Take the word of a log's owner for which servers hold all of it.

        Raises LogOwnerChangedError if another server owns it now.
        """
        with self._lock:
            state, _ = self._find(request)
            if (request.epoch, request.owner) != (state.epoch, state.owner):
                raise LogOwnerChangedError(
                    f"event log {request.name!r} is at epoch {state.epoch}, and not at "
                    f"{request.epoch}: another data server owns it now"
                )
            members = [each for each in state.members if each not in request.remove]
            members += [each for each in request.add if each not in members]
            if state.owner not in members or len(members) > state.replicas:
                raise LogOwnerChangedError(
                    f"event log {request.name!r} cannot have {len(members)} members; its owner "
                    "must ask again where it is"
                )
            if members != state.members:
                placed = LogPlaced(state.name, state.epoch, state.owner, members)
                self._cluster.apply(placed)
            return self._placement(state)

    def replica_count(self, key: str) -> int:
        """Return the replicas that the log ``<name>:<token>`` shall have; 0 if there is none."""
        name, _, token = key.partition(":")
        with self._lock:
            state = self._state.logs.get(name)
            return state.replicas if state is not None and same_token(token, state.token) else 0

    def all(self) -> list[LogPlacement]:
        """Return every log."""
        with self._lock:
            self._expire()
            return [self._placement(state) for state in self._state.logs.values()]

    def _find(
        self, request: LogName | ChangeLogMembers, *needed: LogRight
    ) -> tuple[EventLogState, frozenset[LogRight]]:
        name = check_shuffle_id(request.name)
        state = self._state.logs.get(name)
        if state is None:
            raise EventLogNotFoundError(
                f"no event log {name!r}: it was never created, or it has been dropped; "
                "cluster.create_log makes one"
            )
        return state, check_rights(ShuffleKey(name, request.token), state.token, *needed)

    def _placement(
        self,
        state: EventLogState,
        token: str = "",
        rights: frozenset[LogRight] = ALL_RIGHTS,
    ) -> LogPlacement:
        """Return where a log is, with the token of whoever asks; without one, with its secret."""
        locations = self._state.log_stores()
        members = [LogMember(store, locations.get(store, "")) for store in state.members]
        is_short = len(members) < state.replicas
        return LogPlacement(
            state.name,
            token or state.token,
            state.replicas,
            state.epoch,
            state.owner,
            members,
            self._spares(state.members) if is_short else [],
            self._lease_s,
            log_id(state.token),
            sorted(rights),
        )

    def _spares(self, members: list[str] | tuple[str, ...]) -> list[LogMember]:
        """Return servers that could hold one more log, the least loaded first."""
        load = dict.fromkeys(self._state.log_stores(only_available=True), 0)
        for state in self._state.logs.values():
            for store in state.members:
                if store in load:
                    load[store] += 1
        locations = self._state.log_stores(only_available=True)
        free = sorted((count, store) for store, count in load.items() if store not in members)
        return [LogMember(store, locations[store]) for _, store in free]
