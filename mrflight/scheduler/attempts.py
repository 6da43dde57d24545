"""Which task gets another attempt, and which attempt counts: no clock, no process, no waiting.

An attempt is told by its task and its number. The first to succeed counts, the
others of its task are to be stopped. A failure that another attempt may not
meet is followed by one, up to a limit; every other one ends the stage. A task
that takes much longer than its peers gets a twin, when workers have nothing
else to do. A task whose output is lost, or that goes by what has changed, is
opened again.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mrflight.errors import MrflightError

LIMIT = 4
"""Failed attempts of one task, where nothing else is said."""

_DONE_SHARE = 0.5
"""Of a stage's tasks, before one is called slow: so many show what is usual."""

_TIMES_SLOWER = 2.0
_LEAST_SECONDS_SLOWER = 2.0
"""A twin costs a worker's start and its warm-up: it is not worth it for less."""


class Attempt(NamedTuple):
    """One attempt of a task of a stage, both counted from 0."""

    task: int
    number: int


class StageAttempts:
    """The attempts of one stage, numbered from ``first`` on."""

    def __init__(self, tasks: int, limit: int = LIMIT, first: int = 0) -> None:
        self.limit = limit
        self._next = [first] * tasks
        self._started = [0] * tasks
        self._failures = [0] * tasks
        self._running: list[set[Attempt]] = [set() for _ in range(tasks)]
        self._is_done = [False] * tasks
        self.unfinished = tasks
        """Tasks. Counted, as who runs the stage looks after each attempt."""

    @property
    def started(self) -> int:
        return sum(self._started)

    @property
    def failed(self) -> int:
        """Without those that were lost."""
        return sum(self._failures)

    @property
    def next_number(self) -> int:
        """That no attempt has had, and none below it is free."""
        return max(self._next, default=0)

    def repeated(self) -> list[tuple[int, int]]:
        """The tasks that had several attempts, and the number that none of them has had."""
        several = (task for task, started in enumerate(self._started) if started > 1)
        return [(task, self._next[task]) for task in several]

    def start(self, task: int) -> Attempt:
        """Another attempt of a task that is not done."""
        attempt = Attempt(task, self._next[task])
        self._next[task] += 1
        self._started[task] += 1
        self._running[task].add(attempt)
        return attempt

    def succeed(self, attempt: Attempt) -> set[Attempt]:
        """An attempt that counts has ended; those that are to be stopped."""
        self._mark(attempt.task, is_done=True)
        self._running[attempt.task].discard(attempt)
        stopped, self._running[attempt.task] = self._running[attempt.task], set()
        return stopped

    def fail(self, attempt: Attempt, error: BaseException) -> bool:
        """Whether the stage goes on after the failure of an attempt that counts.

        Then by another attempt of the task, unless one `is_running` that was its twin.
        """
        self._running[attempt.task].discard(attempt)
        self._failures[attempt.task] += 1
        return is_retryable(error) and self._failures[attempt.task] < self.limit

    def discard(self, attempt: Attempt) -> None:
        """An attempt failed for what is made good now: that is none of its task's failures."""
        self._running[attempt.task].discard(attempt)

    def cancel_pending(self, attempt: Attempt) -> None:
        """An attempt was never begun."""
        self._running[attempt.task].discard(attempt)
        self._started[attempt.task] -= 1

    def invalidate(self, task: int) -> set[Attempt]:
        """A task is to be done anew, whether it was done or not; those that are to be stopped."""
        self._mark(task, is_done=False)
        stopped, self._running[task] = self._running[task], set()
        return stopped

    def _mark(self, task: int, *, is_done: bool) -> None:
        self.unfinished += self._is_done[task] - is_done
        self._is_done[task] = is_done

    def unfinished_tasks(self) -> list[int]:
        return [task for task, is_done in enumerate(self._is_done) if not is_done]

    def is_running(self, task: int) -> bool:
        """Whether an attempt of the task runs."""
        return bool(self._running[task])

    def has_speculative_attempt(self, task: int) -> bool:
        """Whether several attempts of the task run."""
        return len(self._running[task]) > 1


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may not meet the error: unforeseen ones may be the machine's."""
    return error.retryable if isinstance(error, MrflightError) else isinstance(error, Exception)


def find_stragglers(
    running_s: Mapping[int, float], done_s: Sequence[float], tasks: int, idle: int
) -> list[int]:
    """The tasks that get a twin, the slowest first, no more than there are ``idle`` workers.

    ``running_s`` has how long the tasks that have a single attempt have been at it, ``done_s``
    how long those took that are done, of ``tasks`` in all. Slow is who takes twice as long as
    the median of those, and seconds more. Spark's and MapReduce's rule is of this kind.
    """
    if len(done_s) < max(1, tasks * _DONE_SHARE):
        return []
    usual = statistics.median(done_s)
    late = max(usual * _TIMES_SLOWER, usual + _LEAST_SECONDS_SLOWER)
    slow = [task for task, seconds in running_s.items() if seconds > late]
    return sorted(slow, key=lambda task: running_s[task], reverse=True)[: max(0, idle)]
