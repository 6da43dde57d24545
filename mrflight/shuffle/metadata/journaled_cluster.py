"""The state of a cluster with its journal: every change is recorded before it is applied."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.events import AnyEvent, ServerGone, ShuffleDropped
from mrflight.shuffle.metadata.log_state import plan_loss
from mrflight.shuffle.metadata.reassignment import Loss, plan_reassignment, plan_recovery
from mrflight.shuffle.metadata.shuffle_state import ShuffleState
from mrflight.shuffle.wire.cluster_status import LostServer

log = logging.getLogger(__name__)

_MAX_LOST = 100


class JournaledCluster:
    """Changes a `ClusterState`. One thread at a time may call it.

    An exception of ``record`` is raised to the caller, and the change is not applied.
    """

    def __init__(
        self,
        state: ClusterState,
        clock: Callable[[], float],
        record: Callable[[AnyEvent], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._record = record
        self.lost: deque[LostServer] = deque(maxlen=_MAX_LOST)
        """The last servers that were removed, since this process was started."""
        self._removed = 0

    def replay(self, events: Iterable[AnyEvent]) -> None:
        """Apply events that were recorded before."""
        for event in events:
            self._state.apply(event, self._clock())

    def apply(self, event: AnyEvent) -> None:
        """Record an event, then apply it."""
        self._record(event)
        self._state.apply(event, self._clock())

    def expire(self, server_timeout_s: float, pending_heartbeats: Mapping[str, str]) -> None:
        """Remove the servers without a heartbeat, and drop the shuffles whose lease has ended.

        ``pending_heartbeats`` are the incarnations of servers whose heartbeat has arrived and is
        not processed yet, by location.
        """
        now_s = self._clock()
        for location, server in list(self._state.servers.items()):
            silent_s = now_s - server.last_seen_s
            if pending_heartbeats.get(location) == server.incarnation:
                continue
            if silent_s > server_timeout_s:
                self.remove_server(location, f"no heartbeat for {silent_s:.0f} s")
        for shuffle in list(self._state.shuffles.values()):
            if shuffle.lease_s is not None and now_s - shuffle.renewed_s > shuffle.lease_s:
                log.warning("shuffle %s is dropped: its lease was not renewed", shuffle.id)
                self.apply(ShuffleDropped(shuffle.id))

    def remove_server(self, location: str, reason: str) -> None:
        """Recover every shuffle from the loss of a server, then remove it."""
        log.warning("the data server %s is removed: %s", location, reason)
        # It is removed last: if one of these events cannot be recorded, the next call does the
        # rest.
        for shuffle in self._state.shuffles.values():
            self.recover(shuffle, Loss(location, is_leaving=True))
        self._move_logs(location)
        self.apply(ServerGone(location))
        self.lost.append(LostServer(self._removed, location, reason))
        self._removed += 1

    def _move_logs(self, location: str) -> None:
        """Give the event logs of a lost server to those of their members that are alive."""
        stores = self._state.log_stores()
        lost = next((store for store, at in stores.items() if at == location), "")
        live = stores.keys() - {lost}
        for state in self._state.logs.values() if lost else ():
            if (event := plan_loss(state, lost, live)) is not None:
                self.apply(event)

    def recover(self, shuffle: ShuffleState, loss: Loss) -> bool:
        """Give partitions that are lost other locations; return whether anything was to be done."""
        event = plan_recovery(shuffle, loss, self._state.servers, self._state.choose_locations)
        if event is not None:
            self.apply(event)
        return event is not None

    def place_unplaced(self, shuffle: ShuffleState) -> None:
        """Place the partitions without a location; raise NoDataServersError if that fails."""
        if (event := plan_reassignment(shuffle, self._state.choose_locations)) is not None:
            self.apply(event)
