"""Records what the data servers of a job hold, and which of them are gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mrflight.config.identity import ClientOptions
from mrflight.errors import MrflightError
from mrflight.events.kinds import ServerLeft, ServersSampled, ServerUse
from mrflight.events.recorder import Recorder
from mrflight.events.task_report import server_name
from mrflight.system.deadlines import NO_RETRY

if TYPE_CHECKING:  # it needs Arrow, which is loaded while the servers start
    from mrflight.shuffle.wire.cluster_status import LostServer, ServerStats, ServerStatus

log = logging.getLogger(__name__)

_MAX_ASKED = 64
"""So many data servers are asked at the end of the maps; each takes half a millisecond."""


class ServerSamples:
    """Asks the metadata server, which knows it by heartbeats, and at times the data servers."""

    def __init__(
        self, metadata: str, client: ClientOptions, events: Recorder, budget_bytes: int | None
    ) -> None:
        """``budget_bytes`` is what all servers hold before they spill; None on a standing cluster.

        Those of a job's own are supervised, which tells of their losses.
        """
        self._metadata = metadata
        self._client = client
        self._events = events
        self._budget_bytes = budget_bytes
        self._lost: int | None = None if budget_bytes is None else -1
        """The number of the last server that was lost, as far as this is recorded."""

    def take(self) -> None:
        """Record what the data servers hold, as they last told."""
        self._take(asks_servers=False)

    def take_after_maps(self, size_bytes: int) -> None:
        """Record what the data servers hold, once all maps have sent so many bytes together.

        If they may have spilled, they are asked themselves, as the end of the job may be near.
        """
        if self._budget_bytes is None or size_bytes > self._budget_bytes // 2:
            self._take(asks_servers=True)

    def _take(self, *, asks_servers: bool) -> None:
        from mrflight.shuffle.client.cluster import Cluster

        try:
            with Cluster(self._metadata, self._client.with_timeouts(NO_RETRY)) as client:
                status = client.status()
                asked = status.servers[:_MAX_ASKED] if asks_servers else []
                stats = {each.location: client.stats(each.location) for each in asked}
        except MrflightError as error:  # polling the shuffles tells what is wrong
            log.debug("%s and its servers do not tell what they hold: %s", self._metadata, error)
            return
        uses = (_use(each, stats.get(each.location)) for each in status.servers)
        self._events.record(ServersSampled(servers=tuple(uses)))
        self._record_lost(status.lost)

    def _record_lost(self, lost: Sequence[LostServer]) -> None:
        """Record the servers that were lost since the job began."""
        if self._lost is not None:
            for each in lost:
                if each.number > self._lost:
                    self._record(each)
        self._lost = max((each.number for each in lost), default=self._lost or -1)

    def _record(self, lost: LostServer) -> None:
        self._events.record(ServerLeft(location=lost.location, cause=lost.cause))
        if self._budget_bytes is None:
            subject = f"the data server {server_name(lost.location)}"
            action = "what it held is read from replicas, or made again"
            self._events.notice(
                "server_lost",
                f"{subject} is gone: {lost.cause}; {action}",
                subject=subject,
                cause=lost.cause,
                action=action,
            )


def _use(server: ServerStatus, now: ServerStats | None) -> ServerUse:
    """Return what a data server holds: as it was asked ``now``, or as of its last heartbeat."""
    held, spilled = server.use.held_bytes, server.use.spilled_bytes
    if now is not None:
        held, spilled = now.memory_bytes, now.spilled_bytes + now.dead_bytes
    name, budget = server_name(server.location), server.use.budget_bytes
    return ServerUse(name, held, budget, spilled, server.partitions)
