"""What changes a cluster: each change is recorded before it takes effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from mrflight.shuffle.metadata.cluster_state import ClusterState
from mrflight.shuffle.metadata.events import AnyEvent, ServerGone, ShuffleDropped
from mrflight.shuffle.metadata.reassignment import plan_homes, plan_loss
from mrflight.shuffle.metadata.shuffle_state import ShuffleState

log = logging.getLogger(__name__)


class RecordedChanges:
    """Changes the cluster as it is ``now``. For one thread at a time.

    What ``record`` raises is raised here, and nothing remains of the change.
    """

    def __init__(
        self,
        now: ClusterState,
        clock: Callable[[], float],
        record: Callable[[AnyEvent], None],
    ) -> None:
        self._now = now
        self._clock = clock
        self._record = record

    def resume(self, events: Iterable[AnyEvent]) -> None:
        """Apply what has been recorded already."""
        for event in events:
            self._now.apply(event, self._clock())

    def happen(self, event: AnyEvent) -> None:
        self._record(event)
        self._now.apply(event, self._clock())

    def expire(self, server_timeout_s: float, knocking: Mapping[str, str]) -> None:
        """Let go of servers that are silent, and of shuffles that nobody cares for.

        ``knocking`` are incarnations of servers that are there, by their locations.
        """
        now_s = self._clock()
        for location, server in list(self._now.servers.items()):
            silent_s = now_s - server.last_seen_s
            if knocking.get(location) == server.incarnation:
                continue
            if silent_s > server_timeout_s:
                self.lose_server(location, f"it has not been heard of for {silent_s:.0f} s")
        for state in list(self._now.shuffles.values()):
            if state.lease_s is not None and now_s - state.renewed_s > state.lease_s:
                log.warning("shuffle %s is dropped: nobody has renewed its lease", state.id)
                self.happen(ShuffleDropped(state.id))

    def lose_server(self, location: str, why: str) -> None:
        log.warning("the data server %s is not used any more: %s", location, why)
        # Gone last: where an event in between is not recorded, the rest is done the next time.
        for state in self._now.shuffles.values():
            self.lose(state, location, is_leaving=True)
        self.happen(ServerGone(location))

    def lose(
        self,
        state: ShuffleState,
        location: str,
        partitions: list[int] | None = None,
        *,
        for_good: bool = False,
        is_leaving: bool = False,
    ) -> bool:
        """Whether it is news that these partitions are lost: see `plan_loss`."""
        event = plan_loss(
            state, location, partitions, self._now.servers, self._now.place, for_good, is_leaving
        )
        if event is not None:
            self.happen(event)
        return event is not None

    def place_homeless(self, state: ShuffleState) -> None:
        """Find places for partitions that have none; NoDataServersError where there are none."""
        if (event := plan_homes(state, self._now.place)) is not None:
            self.happen(event)
