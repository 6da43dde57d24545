"""Reports the data servers that attempts fail to reach to the metadata server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mrflight.errors import (
    DeadlineExceededError,
    MapOutputLostError,
    MrflightError,
    NoDataServersError,
    PlacementChangedError,
    ServerUnavailableError,
    ShuffleNotFoundError,
    SpillError,
)
from mrflight.shuffle.client.shuffle import Shuffle, classify_failure
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from mrflight.system.retry import retry_with_backoff

_MAX_FAILURES_OF_A_LIVE_SERVER = 3
"""After so many failures a server is declared lost that the metadata server still finds alive:
it may be alive for others only. One failure is enough if the attempt found it silent."""

MAX_LOSSES = 100
"""A job ends after so many losses of servers and partitions. Each makes tasks run again."""


class FetchFailureReporter:
    """Reports failures for one job, and makes no call that outlasts the job's ``deadline``."""

    def __init__(self, deadline: Deadline = NO_DEADLINE) -> None:
        self._deadline = deadline
        self._failures: Counter[str] = Counter()
        self._losses = 0

    def report(self, error: Exception, shuffles: Sequence[Shuffle]) -> bool:
        """Return whether the placement of one of the shuffles may have changed due to ``error``.

        It has changed if the reported server or partition is lost. It may have changed if a server
        already said so: PlacementChangedError, MapOutputLostError, a shuffle that one server does
        not know any more, or NoDataServersError. Nothing is reported then; the caller looks.
        Waits for a server if there is none, as long as one takes to restart.
        Raises ``error`` if it cannot be recovered from.
        """
        if isinstance(error, PlacementChangedError | MapOutputLostError):
            return True
        if isinstance(error, ShuffleNotFoundError) and error.location is not None:
            return True  # a server that was declared lost and came back has dropped the shuffle
        if isinstance(error, NoDataServersError):
            self.await_servers(shuffles)
            return True
        if not isinstance(error, MrflightError) or error.location is None:
            return False
        if error.location in {shuffle.metadata for shuffle in shuffles}:
            return False
        force = self._count_failure(error, error.location)
        is_lost = [_report(error, self.clamp(shuffle), force=force) for shuffle in shuffles]
        if not any(is_lost):
            return False
        self._losses += 1
        if self._losses > MAX_LOSSES:
            raise error
        return True

    def _count_failure(self, error: MrflightError, location: str) -> bool:
        """Return whether the server has failed so often that it is declared lost by force."""
        if isinstance(error, ServerUnavailableError | DeadlineExceededError):
            self._failures[location] += 1
        return self._failures[location] >= _MAX_FAILURES_OF_A_LIVE_SERVER

    def await_servers(self, shuffles: Sequence[Shuffle]) -> None:
        """Wait until every partition has a server; NoDataServersError if that takes too long."""
        for shuffle in map(self.clamp, shuffles):
            retry_for_s = shuffle.client.timeouts.reconnect_s
            retry_with_backoff(shuffle.placement, retry_for_s, (NoDataServersError,))

    def clamp(self, shuffle: Shuffle) -> Shuffle:
        """Return the shuffle with timeouts that end with the job, for calls that begin now."""
        return shuffle.with_timeouts(self._deadline.clamp(shuffle.client.timeouts))


def _report(error: MrflightError, shuffle: Shuffle, *, force: bool) -> bool:
    """Report what ``error`` says is lost; return whether the metadata server agrees."""
    lost = classify_failure(error)
    if lost is None:
        return False
    force = lost.insists or (force and lost.partitions is None)
    is_lost = shuffle.report_loss(lost.location, lost.partitions, insists=force)
    if not is_lost and lost.is_silent:
        is_lost = shuffle.report_silence(lost.location)
    if isinstance(error, SpillError):
        try:
            shuffle.placement()
        except NoDataServersError as no_servers:
            raise error from no_servers  # waiting would not free space on the disk
    return is_lost
