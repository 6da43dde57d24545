"""Runs the tasks of one stage, whatever the executor: the one place that retries."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mrflight.errors import InconsistentMapOutputError
from mrflight.scheduler.attempts import Attempt, StageAttempts, find_stragglers
from mrflight.scheduler.recovery import Recovery
from mrflight.system.deadlines import Deadline
from mrflight.system.progress import ProgressReport

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor

log = logging.getLogger(__name__)

T = TypeVar("T", bound="Task")
R = TypeVar("R")

_LOOK_EVERY_S = 0.25
"""For tasks that have begun, and for slow ones."""

_STOP_TIMEOUT_S = 10.0
"""Of an attempt that was stopped, until its worker is known to be gone."""


class Task(Protocol):
    """Anything with a name for messages."""

    @property
    def name(self) -> str: ...


def nothing(task: object, attempts: int) -> None:
    """What most stages do about attempts that do not count."""


class TaskSet(Generic[T, R]):
    """One stage of a job. It is run once."""

    def __init__(
        self,
        attempts: StageAttempts,
        executor: Executor,
        progress: ProgressReport,
        tasks: Sequence[T],
        submit: Callable[[T, int], Future[R]],
        tidy_up: Callable[[T, int], None],
        recovery: Recovery[T],
        speculates: bool,
    ) -> None:
        self._attempts = attempts
        self._executor = executor
        self._progress = progress
        self._tasks = list(tasks)
        self._submit = submit
        self._tidy_up = tidy_up
        self._mender = recovery
        self._speculates = speculates
        self._told: set[int] = set()
        self._ended: SimpleQueue[Attempt] = SimpleQueue()
        self._futures: dict[Attempt, Future[R]] = {}
        self._stopped: dict[Future[R], Attempt] = {}
        self._began_s: dict[Attempt, float] = {}
        self._took_s: dict[int, float] = {}
        """Of the tasks that are done."""
        self._results: dict[int, R] = {}

    def run(self, deadline: Deadline) -> list[R]:
        """The results of all tasks; see `StageRunner.run`."""
        try:
            return self._run(deadline)
        except InconsistentMapOutputError:  # the job goes on, and needs the workers
            self._stop(self._attempts.unfinished_tasks())
            self._let_go()
            raise

    def _run(self, deadline: Deadline) -> list[R]:
        for task in range(len(self._tasks)):
            self._start(task)
        look_at = time.monotonic() + _LOOK_EVERY_S
        while self._attempts.unfinished:
            wake_at = min(look_at, deadline.at)
            with suppress(Empty):
                self._take(self._ended.get(timeout=max(0.0, wake_at - time.monotonic())))
            self._check(deadline)
            if time.monotonic() >= look_at:
                if self._mender.is_stale():
                    self._mend()
                if self._speculates:
                    self._look_for_slow_tasks()
                look_at = time.monotonic() + _LOOK_EVERY_S
        self._let_go()
        return [self._results[task] for task in range(len(self._tasks))]

    def _start(self, task: int) -> None:
        attempt = self._attempts.start(task)
        future = self._submit(self._tasks[task], attempt.number)
        self._futures[attempt] = future
        future.add_done_callback(lambda _: self._ended.put(attempt))

    def _take(self, attempt: Attempt) -> None:
        """Decide what follows from the end of an attempt."""
        future = self._futures.pop(attempt, None)
        if future is None:  # it was stopped
            return
        try:
            self._results[attempt.task] = future.result()
        except Exception as error:
            with self._naming(attempt):
                self._take_failure(attempt, error)
            return
        self._took_s[attempt.task] = time.monotonic() - self._began_s.get(attempt, time.monotonic())
        for twin in self._attempts.succeed(attempt):
            self._stop_attempt(twin, self._futures.pop(twin))
        if attempt.task not in self._told:
            self._told.add(attempt.task)
            self._progress.advance()

    def _take_failure(self, attempt: Attempt, error: Exception) -> None:
        if self._mend(error, attempt):
            return
        if not self._attempts.fail(attempt, error):
            raise error
        self._progress.notify(
            f"{self._tasks[attempt.task].name}: attempt {attempt.number + 1} of "
            f"{self._attempts.limit} failed and is made again: {_in_one_line(error)}"
        )
        if not self._attempts.is_running(attempt.task):
            self._start(attempt.task)

    @contextmanager
    def _naming(self, attempt: Attempt) -> Iterator[None]:
        """Say of what is raised inside which attempt it is about."""
        try:
            yield
        except Exception as error:
            number = f", attempt {attempt.number + 1}" if attempt.number else ""
            error.add_note(f"{self._tasks[attempt.task].name}{number}")
            raise

    def _mend(self, error: Exception | None = None, failed: Attempt | None = None) -> bool:
        """Do anew what was lost; whether there was something, so that ``failed`` is no failure."""
        anew = self._mender.recover(error, self._attempts.unfinished_tasks(), self._stop)
        if anew is None:
            return False
        if failed is not None and error is not None:
            self._attempts.discard(failed)
            name = self._tasks[failed.task].name
            self._progress.notify(f"{name} is made again: {_in_one_line(error)}")
        for number, task in anew.items():
            self._tasks[number] = task
            self._results.pop(number, None)
        self._stop(anew)
        for number in self._attempts.unfinished_tasks():
            if not self._attempts.is_running(number):
                self._start(number)
        return True

    def _stop(self, tasks: Iterable[int]) -> None:
        """End the attempts of tasks, which are not done then."""
        for task in tasks:
            self._took_s.pop(task, None)
            for attempt in self._attempts.invalidate(task):
                if (future := self._futures.pop(attempt, None)) is None:
                    continue  # it has ended, and its end is what is looked at
                if future.cancel():
                    self._attempts.cancel_pending(attempt)
                else:
                    self._stop_attempt(attempt, future)

    def _stop_attempt(self, attempt: Attempt, future: Future[R]) -> None:
        self._stopped[future] = attempt
        self._executor.stop(future)

    def _look_for_slow_tasks(self) -> None:
        """Give twins to tasks that take long, where workers have nothing else to do."""
        now = time.monotonic()
        running = [attempt for attempt, future in self._futures.items() if future.running()]
        for attempt in running:
            self._began_s.setdefault(attempt, now)
        if len(running) < len(self._futures):
            return  # there are tasks that nobody has begun
        single = {
            attempt.task: now - self._began_s[attempt]
            for attempt in running
            if not self._attempts.has_speculative_attempt(attempt.task)
        }
        idle = self._executor.workers - len(running)
        for task in find_stragglers(single, list(self._took_s.values()), len(self._tasks), idle):
            self._progress.notify(
                f"{self._tasks[task].name} has taken {single[task]:.0f} s, much longer than "
                "others; a second attempt is started beside it"
            )
            self._start(task)

    def _check(self, deadline: Deadline) -> None:
        if self._attempts.unfinished:
            deadline.check(f"{self._attempts.unfinished} of {len(self._tasks)} tasks unfinished")

    def _let_go(self) -> None:
        """Wait for the attempts that were stopped, so that they write nothing any more."""
        still = [self._stopped[future] for future in wait(self._stopped, _STOP_TIMEOUT_S).not_done]
        for attempt in sorted(still):
            log.warning(
                "%s, attempt %d, still runs %g s after it was stopped; what it writes is left",
                self._tasks[attempt.task].name,
                attempt.number + 1,
                _STOP_TIMEOUT_S,
            )
        unsettled = {attempt.task for attempt in still}
        for task, attempts in self._attempts.repeated():
            if task not in unsettled:
                self._tidy_up(self._tasks[task], attempts)


def _in_one_line(error: Exception) -> str:
    """What happened, without the lines of a traceback between its first and its last."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
