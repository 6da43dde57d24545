"""What follows from a failed attempt for the shuffles that it used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

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
from mrflight.shuffle.client.fetch_failures import classify_failure
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from mrflight.system.retry import retry_with_backoff

_INSISTS_FROM = 3
"""Failures by one server that its cluster finds alive: then it is alive for others."""

MOST_LOSSES = 100
"""Each time that a job begins. Each takes a server, or a partition, from a shuffle."""


class FetchFailureReporter:
    """Reports what attempts say of servers, for one job, and not beyond its ``deadline``."""

    def __init__(self, deadline: Deadline = NO_DEADLINE) -> None:
        self._deadline = deadline
        self._failures: Counter[str] = Counter()
        self._reports = 0

    def report(self, error: Exception, shuffles: Sequence[Shuffle]) -> bool:
        """Whether ``error`` is about the placement of one of the shuffles, which may have changed.

        It has where this reported it. Where servers had told the attempt (PlacementChangedError,
        MapOutputLostError, a shuffle that one of them does not know any more), or there were none,
        nobody is asked here: the caller looks.
        Waits for a server where there is none left, for as long as one that starts anew may take.
        Raises ``error`` where it cannot be made good.
        """
        if isinstance(error, PlacementChangedError | MapOutputLostError):
            return True
        if isinstance(error, ShuffleNotFoundError) and error.location is not None:
            return True  # a server that was given up, and that has come back, has dropped it
        if isinstance(error, NoDataServersError):
            self.await_servers(shuffles)
            return True
        if not isinstance(error, MrflightError) or error.location is None:
            return False
        if error.location in {shuffle.metadata for shuffle in shuffles}:
            return False
        insists = self._insists(error, error.location)
        is_lost = [_report(error, self.in_time(shuffle), insists) for shuffle in shuffles]
        if not any(is_lost):
            return False
        self._reports += 1
        if self._reports > MOST_LOSSES:
            raise error
        return True

    def _insists(self, error: MrflightError, location: str) -> bool:
        """Whether a server is given up for this failure, one of several, though others reach it."""
        if isinstance(error, ServerUnavailableError | DeadlineExceededError):
            self._failures[location] += 1
        return self._failures[location] >= _INSISTS_FROM

    def await_servers(self, shuffles: Sequence[Shuffle]) -> None:
        """Wait until every partition is somewhere; NoDataServersError where that takes too long."""
        for shuffle in map(self.in_time, shuffles):
            retry_for_s = shuffle.timeouts.reconnect_s
            retry_with_backoff(shuffle.placement, retry_for_s, (NoDataServersError,))

    def in_time(self, shuffle: Shuffle) -> Shuffle:
        """The same for calls that are made now, none of which outlasts the job."""
        return replace(shuffle, timeouts=self._deadline.clamp(shuffle.timeouts))


def _report(error: MrflightError, shuffle: Shuffle, insists: bool) -> bool:
    lost = classify_failure(error)
    if lost is None:
        return False
    insists = lost.insists or (insists and lost.partitions is None)
    is_lost = shuffle.report_loss(lost.location, lost.partitions, insists=insists)
    if isinstance(error, SpillError):
        try:
            shuffle.placement()
        except NoDataServersError as nowhere:
            raise error from nowhere  # to wait would give the disk no room
    return is_lost
