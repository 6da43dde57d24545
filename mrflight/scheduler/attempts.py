"""Decides which task gets another attempt and which attempt counts. No clock, no process.

The first attempt of a task that succeeds counts, and the others are to be stopped. After a
retryable failure the task gets another attempt, up to a limit; any other failure ends the stage, as
does an error that a user's function raises for the second time. A straggler, which takes much
longer than its peers, gets a speculative attempt when workers are idle. A task whose output is
lost, or whose inputs have moved, is invalidated: it is unfinished again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mrflight.errors import MrflightError, UserFunctionRaisedError

MAX_TASK_FAILURES = 4
"""The default number of failed attempts of one task that end its stage."""

_MIN_DONE_FRACTION = 0.5
"""The fraction of a stage's tasks that must be done before stragglers are looked for."""

_STRAGGLER_FACTOR = 2.0
_MIN_STRAGGLER_DELAY_S = 2.0
"""A speculative attempt costs the start and the warm-up of a worker, which less does not pay."""


class Attempt(NamedTuple):
    """An attempt of a task; tasks and attempts are numbered from 0."""

    task: int
    number: int


class StageAttempts:
    """The attempts of one stage, numbered from ``first`` on."""

    def __init__(self, tasks: int, max_failures: int = MAX_TASK_FAILURES, first: int = 0) -> None:
        self.max_failures = max_failures
        self._next = [first] * tasks
        self._started = [0] * tasks
        self._failures = [0] * tasks
        self._raised: list[set[str]] = [set() for _ in range(tasks)]
        """What the user's functions raised."""
        self._running: list[set[Attempt]] = [set() for _ in range(tasks)]
        self._is_done = [False] * tasks
        self.unfinished = tasks
        """The number of unfinished tasks, kept because it is read after every attempt."""

    @property
    def started(self) -> int:
        return sum(self._started)

    @property
    def failed(self) -> int:
        """The failures that count against a task, without discarded attempts."""
        return sum(self._failures)

    @property
    def next_number(self) -> int:
        """A number above those of all attempts."""
        return max(self._next, default=0)

    def repeated(self) -> list[tuple[int, int]]:
        """Return the tasks that had several attempts, each with a number above theirs."""
        several = (task for task, started in enumerate(self._started) if started > 1)
        return [(task, self._next[task]) for task in several]

    def start(self, task: int) -> Attempt:
        """Start another attempt of an unfinished task."""
        attempt = Attempt(task, self._next[task])
        self._next[task] += 1
        self._started[task] += 1
        self._running[task].add(attempt)
        return attempt

    def succeed(self, attempt: Attempt) -> set[Attempt]:
        """Record the attempt that counts; return the others of the task, which must be stopped."""
        self._mark(attempt.task, is_done=True)
        self._running[attempt.task].discard(attempt)
        stopped, self._running[attempt.task] = self._running[attempt.task], set()
        return stopped

    def fail(self, attempt: Attempt, error: BaseException) -> bool:
        """Record a failure; return whether the stage goes on.

        It goes on with another attempt of the task, unless a speculative one `is_running`.
        """
        self._running[attempt.task].discard(attempt)
        self._failures[attempt.task] += 1
        may_succeed = is_retryable(error) and not self._was_raised_before(attempt.task, error)
        return may_succeed and self._failures[attempt.task] < self.max_failures

    def _was_raised_before(self, task: int, error: BaseException) -> bool:
        """Return whether a user's function raised the same at the same place in another attempt."""
        if not isinstance(error, UserFunctionRaisedError) or error.has_system_cause:
            return False
        before, text = self._raised[task], str(error)
        is_known = text in before
        before.add(text)
        return is_known

    def discard(self, attempt: Attempt) -> None:
        """Record the end of an attempt that does not count as a failure: something was lost."""
        self._running[attempt.task].discard(attempt)

    def cancel_pending(self, attempt: Attempt) -> None:
        """Forget an attempt that no worker has begun."""
        self._running[attempt.task].discard(attempt)
        self._started[attempt.task] -= 1

    def invalidate(self, task: int) -> set[Attempt]:
        """Mark a task as unfinished; return its attempts, which must be stopped."""
        self._mark(task, is_done=False)
        stopped, self._running[task] = self._running[task], set()
        return stopped

    def _mark(self, task: int, *, is_done: bool) -> None:
        self.unfinished += self._is_done[task] - is_done
        self._is_done[task] = is_done

    def unfinished_tasks(self) -> list[int]:
        return [task for task, is_done in enumerate(self._is_done) if not is_done]

    def is_running(self, task: int) -> bool:
        """Return whether an attempt of the task runs."""
        return bool(self._running[task])

    def has_speculative_attempt(self, task: int) -> bool:
        """Return whether several attempts of the task run."""
        return len(self._running[task]) > 1


def is_retryable(error: BaseException) -> bool:
    """Return whether another attempt may succeed; unknown errors may be due to the machine."""
    return error.retryable if isinstance(error, MrflightError) else isinstance(error, Exception)


def find_stragglers(
    running_s: Mapping[int, float], done_s: Sequence[float], tasks: int, idle: int
) -> list[int]:
    """Return the tasks that get a speculative attempt, slowest first, at most one per idle worker.

    ``running_s`` holds how long tasks with a single attempt have been running, and ``done_s`` how
    long the finished ones of all ``tasks`` took. A straggler has taken twice as long as the median
    of those, and at least 2 s longer. Spark and MapReduce have a rule of this kind.
    """
    if len(done_s) < max(1, tasks * _MIN_DONE_FRACTION):
        return []
    usual = _median(done_s)
    late = max(usual * _STRAGGLER_FACTOR, usual + _MIN_STRAGGLER_DELAY_S)
    stragglers = [task for task, seconds in running_s.items() if seconds > late]
    return sorted(stragglers, key=lambda task: running_s[task], reverse=True)[: max(0, idle)]


def _median(numbers: Sequence[float]) -> float:
    """Return the median, without the 4 to 15 ms that an import of `statistics` takes."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2
