"""The shuffles of a job: watched as soon as they are created, and dropped at its end."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mrflight.config.identity import ClientOptions
from mrflight.config.spec import JobSpec
from mrflight.errors import (
    DeadlineExceededError,
    MrflightError,
    NoDataServersError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.events.kinds import ServersSampled, ServerUse
from mrflight.events.recorder import Recorder
from mrflight.events.task_report import server_name
from mrflight.ids import new_token, shown_job_name
from mrflight.scheduler.shuffle_monitor import LEASE_S, ShuffleMonitor
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import NO_RETRY, Deadline
from mrflight.system.retry import retry_with_backoff
from mrflight.units import format_count

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.shuffle.client.cluster import Cluster
    from mrflight.shuffle.client.shuffle import Shuffle
    from mrflight.shuffle.wire.protocol import ServerStats, ServerStatus

log = logging.getLogger(__name__)

_MAX_ASKED = 64
"""So many data servers are asked at the end of the maps; each takes half a millisecond."""


class JobShuffles(Closeable):
    """Creates shuffles on a cluster. A context manager, which drops them on a standing cluster.

    An embedded cluster ends with its job.
    """

    def __init__(
        self,
        metadata: str,
        spec: JobSpec,
        client: ClientOptions,
        deadline: Deadline,
        events: Recorder,
        *,
        is_standing: bool,
        budget_bytes: int | None = None,
    ) -> None:
        """``budget_bytes`` is what the data servers hold before they spill, if it is known."""
        self._metadata = metadata
        self._replicas = spec.shuffle.replicas
        self._job = shown_job_name(spec.job.name)
        self._client = client
        self._deadline = deadline
        self._events = events
        self._is_standing = is_standing
        self._budget_bytes = budget_bytes
        self._created: list[Shuffle] = []
        self.monitor = ShuffleMonitor(self.sample_servers)
        """Watches all shuffles; to be closed once no task reads them any more."""

    def create(self, name: str, partitions: int) -> Shuffle:
        """Create a shuffle and watch it.

        Waits for servers that may be restarting, and reports it once: they may never have started.
        """
        from mrflight.shuffle.client.cluster import Cluster

        timeouts = self._deadline.clamp(self._client.timeouts)
        with Cluster(self._metadata, self._client.with_timeouts(timeouts)) as client:
            shuffle = self._create_on(client, name, partitions, timeouts.reconnect_s)
        log.info("shuffle %s: %s", name, format_count(partitions, "partition"))
        shuffle = shuffle.with_timeouts(self._client.timeouts)
        self._created.append(shuffle)
        self.monitor.add(shuffle)
        return shuffle

    def sample_servers(self) -> None:
        """Record what the data servers hold, as they last told their metadata server."""
        self._sample(asks_servers=False)

    def sample_end_of_maps(self, size_bytes: int) -> None:
        """Record what the data servers hold, once all maps have sent so many bytes together.

        If they may have spilled, they are asked themselves, as the end of the job may be near.
        """
        if self._budget_bytes is None or size_bytes > self._budget_bytes // 2:
            self._sample(asks_servers=True)

    def _sample(self, *, asks_servers: bool) -> None:
        from mrflight.shuffle.client.cluster import Cluster

        try:
            with Cluster(self._metadata, self._client.with_timeouts(NO_RETRY)) as client:
                servers = client.status().servers
                asked = servers[:_MAX_ASKED] if asks_servers else []
                stats = {each.location: client.stats(each.location) for each in asked}
        except MrflightError as error:  # polling the shuffles tells what is wrong
            log.debug("%s and its servers do not tell what they hold: %s", self._metadata, error)
            return
        uses = (_use(each, stats.get(each.location)) for each in servers)
        self._events.record(ServersSampled(servers=tuple(uses)))

    def drop(self) -> None:
        """Drop all shuffles, because the job runs all stages again or needs the memory."""
        while self._created:
            shuffle = self._created.pop()
            self.monitor.remove(shuffle)
            _drop(shuffle)

    def close(self) -> None:
        """Stop watching, and drop the shuffles if their servers outlive the job."""
        self.monitor.close()
        if self._is_standing and self._created:
            # The job's outcome is decided, and leases expire as well: do not wait for servers.
            hasty = [shuffle.with_timeouts(NO_RETRY) for shuffle in self._created]
            with ThreadPoolExecutor(len(hasty), "drop") as threads:
                list(threads.map(_drop, hasty))

    def _create_on(
        self, client: Cluster, name: str, partitions: int, retry_for_s: float
    ) -> Shuffle:
        lease_s = LEASE_S if self._is_standing else None
        token = new_token()
        reported: list[Exception] = []

        def report_once(error: Exception) -> None:
            if not reported:
                reported.append(error)
                action = f"retrying for {retry_for_s:g} s"
                self._events.notice(
                    "waiting",
                    f"{error}; {action}",
                    subject=self._metadata,
                    cause=str(error),
                    action=action,
                )

        try:
            return retry_with_backoff(
                lambda: client.create_shuffle(
                    name, partitions, self._replicas, lease_s, token, self._job
                ),
                retry_for_s,
                (ServerUnavailableError, DeadlineExceededError, NoDataServersError),
                report_once,
            )
        except (ServerUnavailableError, DeadlineExceededError, NoDataServersError) as error:
            if self._is_standing:
                error.add_note("the cluster of cluster.metadata: are its servers started?")
            raise


def _use(server: ServerStatus, now: ServerStats | None) -> ServerUse:
    """Return what a data server holds: as it was asked ``now``, or as of its last heartbeat."""
    held, spilled = server.use.held_bytes, server.use.spilled_bytes
    if now is not None:
        held, spilled = now.memory_bytes, now.spilled_bytes + now.dead_bytes
    name, budget = server_name(server.location), server.use.budget_bytes
    return ServerUse(name, held, budget, spilled, server.partitions)


def _drop(shuffle: Shuffle) -> None:
    """Drop a shuffle, or log that it stays: the job's outcome is decided before this."""
    try:
        shuffle.drop()
    except ShuffleNotFoundError:
        log.debug("shuffle %s has been dropped already", shuffle.id)
    except MrflightError as error:
        log.warning("shuffle %s stays on the cluster: %s", shuffle.id, error)
