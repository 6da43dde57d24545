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
from mrflight.events.recorder import Recorder
from mrflight.ids import new_token, shown_job_name
from mrflight.scheduler.server_samples import ServerSamples
from mrflight.scheduler.shuffle_monitor import LEASE_S, ShuffleMonitor
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import NO_RETRY, Deadline
from mrflight.system.retry import retry_with_backoff
from mrflight.units import format_count

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.shuffle.client.cluster import Cluster
    from mrflight.shuffle.client.shuffle import Shuffle

log = logging.getLogger(__name__)


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
        """``budget_bytes`` is what the servers of an embedded cluster hold before they spill."""
        self._metadata = metadata
        self._replicas = spec.shuffle.replicas
        self._job = shown_job_name(spec.job.name)
        self._client = client
        self._deadline = deadline
        self._events = events
        self._is_standing = is_standing
        self._created: list[Shuffle] = []
        self.samples = ServerSamples(metadata, client, events, budget_bytes)
        self.monitor = ShuffleMonitor(self.samples.take)
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


def _drop(shuffle: Shuffle) -> None:
    """Drop a shuffle, or log that it stays: the job's outcome is decided before this."""
    try:
        shuffle.drop()
    except ShuffleNotFoundError:
        log.debug("shuffle %s has been dropped already", shuffle.id)
    except MrflightError as error:
        log.warning("shuffle %s stays on the cluster: %s", shuffle.id, error)
