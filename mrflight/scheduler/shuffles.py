"""The shuffles that a job makes: watched from the first moment, dropped when they are of no use."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mrflight.errors import (
    DeadlineExceededError,
    MrflightError,
    NoDataServersError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.ids import new_writer_id
from mrflight.scheduler.shuffle_monitor import LEASE_S, ShuffleMonitor
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import NO_RETRY, Deadline, Timeouts
from mrflight.system.progress import ProgressReport
from mrflight.system.retry import retry_with_backoff

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.shuffle.client.cluster import Cluster
    from mrflight.shuffle.client.shuffle import Shuffle

log = logging.getLogger(__name__)


class JobShuffles(Closeable):
    """Makes shuffles on a cluster, as a context manager, at whose end a standing one drops them.

    An embedded one ends with its job.
    """

    def __init__(
        self,
        metadata: str,
        replicas: int,
        timeouts: Timeouts,
        deadline: Deadline,
        progress: ProgressReport,
        *,
        is_standing: bool,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._timeouts = timeouts
        self._deadline = deadline
        self._progress = progress
        self._is_standing = is_standing
        self._made: list[Shuffle] = []
        self.watch = ShuffleMonitor()
        """Of all shuffles; to be closed once nobody reads them any more."""

    def make(self, name: str, partitions: int) -> Shuffle:
        """A shuffle that is watched; waits for servers that may be starting anew, as at any time.

        Or that were never there, which is told at once.
        """
        from mrflight.shuffle.client.cluster import Cluster

        timeouts = self._deadline.clamp(self._timeouts)
        with Cluster(self._metadata, timeouts) as client:
            shuffle = self._made_on(client, name, partitions, timeouts.reconnect_s)
        shuffle = replace(shuffle, timeouts=self._timeouts)
        self._made.append(shuffle)
        self.watch.add(shuffle)
        return shuffle

    def drop(self) -> None:
        """Free all that were made until now, as the job begins anew."""
        while self._made:
            shuffle = self._made.pop()
            self.watch.remove(shuffle)
            _drop(shuffle)

    def close(self) -> None:
        """Stop watching, and drop the shuffles if their servers go on after this job."""
        self.watch.close()
        if self._is_standing and self._made:
            # What becomes of the job is decided, and leases end as well: nobody is waited for.
            hasty = [replace(shuffle, timeouts=NO_RETRY) for shuffle in self._made]
            with ThreadPoolExecutor(len(hasty), "drop") as threads:
                list(threads.map(_drop, hasty))

    def _made_on(self, client: Cluster, name: str, partitions: int, retry_for_s: float) -> Shuffle:
        lease_s = LEASE_S if self._is_standing else None
        token = new_writer_id()
        told: list[Exception] = []

        def tell_once(error: Exception) -> None:
            if not told:
                told.append(error)
                self._progress.notify(f"{error}; asked again for {retry_for_s:g} s")

        try:
            return retry_with_backoff(
                lambda: client.create_shuffle(name, partitions, self._replicas, lease_s, token),
                retry_for_s,
                (ServerUnavailableError, DeadlineExceededError, NoDataServersError),
                tell_once,
            )
        except (ServerUnavailableError, DeadlineExceededError, NoDataServersError) as error:
            if self._is_standing:
                error.add_note("the cluster of cluster.metadata: are its servers started?")
            raise


def _drop(shuffle: Shuffle) -> None:
    """Free a shuffle, or say that it stays: what became of the job is decided before this."""
    try:
        shuffle.drop()
    except ShuffleNotFoundError:
        log.debug("shuffle %s has been dropped already", shuffle.id)
    except MrflightError as error:
        log.warning("shuffle %s stays on the cluster: %s", shuffle.id, error)
