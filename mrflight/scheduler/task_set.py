"""Runs one set of tasks on any executor: the one place that retries and speculates."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mrflight.errors import InconsistentMapOutputError, UserFunctionRaisedError
from mrflight.events.kinds import QueryStage
from mrflight.runtime.task_call import opened
from mrflight.scheduler.attempts import Attempt, StageAttempts, find_stragglers
from mrflight.scheduler.recovery.protocol import NO_RECOVERY, Recovery
from mrflight.scheduler.stage_events import StageEvents, TaskAttempt
from mrflight.system.deadlines import Deadline
from mrflight.system.progress import Work

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor

log = logging.getLogger(__name__)

T = TypeVar("T", bound="Task")
R = TypeVar("R")

_LOOK_EVERY_S = 0.25
"""A task set looks so often for changed placements, tasks that have begun, and stragglers."""

_MAX_EARLY_RETRIES = 8
"""So many retries come before the tasks that wait, which are all submitted again for each."""

_STOP_TIMEOUT_S = 10.0
"""An attempt that was stopped may take so long until its worker is known to be gone."""


class Task(Protocol):
    """Anything with a name for messages."""

    @property
    def name(self) -> str: ...


def no_cleanup(task: object, attempts: int) -> None:
    """Leave what attempts that do not count have written: most tasks write nothing."""


def no_work(task: object, result: object) -> Work:
    """Report no rows: most tasks move none."""
    return Work()


@dataclass(frozen=True)
class TaskSetSpec(Generic[T, R]):
    """A set of tasks of one stage and how they are run."""

    tasks: Sequence[T]
    submit: Callable[[T, int], Future[R]]
    """Starts the attempt with this number of a task; `StageRunner.submit` lets it report."""
    cleanup: Callable[[T, int], None] = no_cleanup
    """Called for each task that had several attempts, once all of them have ended, with a number
    above all of theirs."""
    recovery: Recovery[T] = NO_RECOVERY
    """Decides what runs again if servers are lost."""
    work: Callable[[T, R], Work] = no_work
    """Returns what a task that has ended has done, for the progress report."""
    size_bytes: int = 0
    """The bytes of the work of all tasks; 0 if they are not known."""
    runs: QueryStage | None = None
    """The stage of a query whose result they make."""


class TaskSet(Generic[T, R]):
    """A set of tasks while it runs. It is run once."""

    def __init__(
        self,
        spec: TaskSetSpec[T, R],
        attempts: StageAttempts,
        executor: Executor,
        events: StageEvents,
        *,
        speculates: bool,
    ) -> None:
        self._spec = spec
        self._tasks = list(spec.tasks)
        self._attempts = attempts
        self._executor = executor
        self._events = events
        self._speculates = speculates
        self._counted: set[int] = set()
        """The tasks that have been done, whether their output was lost again or not."""
        self._speculative: set[Attempt] = set()
        self._ended: SimpleQueue[tuple[Attempt, Future[R]]] = SimpleQueue()
        self._futures: dict[Attempt, Future[R]] = {}
        self._stopped: dict[Future[R], Attempt] = {}
        self._began_s: dict[Attempt, float] = {}
        self._took_s: dict[int, float] = {}
        """The duration of each finished task."""
        self._results: dict[int, R] = {}
        self._early_retries = 0

    def run(self, deadline: Deadline) -> list[R]:
        """Run all tasks and return their results; see `StageRunner.run`."""
        try:
            return self._run(deadline)
        except InconsistentMapOutputError:  # the job runs all stages again, and needs the workers
            self._stop(self._attempts.unfinished_tasks())
            self._await_stopped()
            raise
        except BaseException:
            for attempt, future in self._futures.items():
                if future.running():
                    self._events.stopped(self._of(attempt), self._seconds(attempt))
            raise

    def _run(self, deadline: Deadline) -> list[R]:
        for task in range(len(self._tasks)):
            self._start(task)
        look_at = time.monotonic() + _LOOK_EVERY_S
        while self._attempts.unfinished:
            wake_at = min(look_at, deadline.at)
            with suppress(Empty):
                self._take(*self._ended.get(timeout=max(0.0, wake_at - time.monotonic())))
            self._check(deadline)
            if time.monotonic() >= look_at:
                if self._spec.recovery.is_stale():
                    self._recover()
                running = self._running()
                if self._speculates:
                    self._speculate(running)
                look_at = time.monotonic() + _LOOK_EVERY_S
        self._await_stopped()
        return [self._results[task] for task in range(len(self._tasks))]

    def _start(self, task: int) -> None:
        attempt = self._attempts.start(task)
        if self._attempts.has_speculative_attempt(task):
            self._speculative.add(attempt)
        self._submit(attempt)

    def _submit(self, attempt: Attempt) -> None:
        with self._events.labelled(self._of(attempt)):
            log.debug("%s: attempt %d", self._tasks[attempt.task].name, attempt.number + 1)
            future = self._spec.submit(self._tasks[attempt.task], attempt.number)
        self._futures[attempt] = future
        future.add_done_callback(lambda ended: self._ended.put((attempt, ended)))

    def _start_next(self, task: int) -> None:
        """Start another attempt, before those that no worker has begun yet."""
        waiting = [attempt for attempt, future in self._futures.items() if future.cancel()]
        self._start(task)
        for attempt in waiting:
            self._submit(attempt)

    def _take(self, attempt: Attempt, future: Future[R]) -> None:
        """Take the result or the failure of an attempt that has ended."""
        if self._futures.get(attempt) is not future:  # it was stopped, or submitted again
            return
        del self._futures[attempt]
        try:
            answer = future.result()
        except Exception as error:
            with self._note_task(attempt):
                self._take_failure(attempt, error)
            return
        self._took_s[attempt.task] = self._seconds(attempt)
        log.debug("%s: attempt %d is done", self._tasks[attempt.task].name, attempt.number + 1)
        for other in self._attempts.succeed(attempt):
            self._stop_attempt(other, self._futures.pop(other))
        self._take_answer(attempt, answer)

    def _take_answer(self, attempt: Attempt, answer: R) -> None:
        """Take the result of the attempt that counts, and the report of its worker."""
        result, report = opened(answer)
        self._results[attempt.task] = result
        work = self._spec.work(self._tasks[attempt.task], result)
        again = attempt.task in self._counted
        self._counted.add(attempt.task)
        self._events.done(self._of(attempt), report, work, again=again)

    def _take_failure(self, attempt: Attempt, error: Exception) -> None:
        """Recover from the failure, start another attempt, or raise ``error``."""
        if self._recover(error, attempt):
            return
        self._events.failed(self._of(attempt), "failed", error, self._seconds(attempt))
        if not self._attempts.fail(attempt, error):
            raise error
        self._events.retried(self._of(attempt), self._attempts.max_failures, error)
        if self._attempts.is_running(attempt.task):
            return
        if isinstance(error, UserFunctionRaisedError) and self._early_retries < _MAX_EARLY_RETRIES:
            self._early_retries += 1
            self._start_next(attempt.task)  # if it raises the same again, the job ends
        else:
            self._start(attempt.task)

    @contextmanager
    def _note_task(self, attempt: Attempt) -> Iterator[None]:
        """Add the task's name and the attempt as a note to what is raised inside."""
        try:
            yield
        except Exception as error:
            number = f", attempt {attempt.number + 1}" if attempt.number else ""
            error.add_note(f"{self._tasks[attempt.task].name}{number}")
            raise

    def _recover(self, error: Exception | None = None, failed: Attempt | None = None) -> bool:
        """Run again what was lost.

        Returns whether something was; then ``failed`` does not count as a failure of its task.
        """
        again = self._spec.recovery.recover(error, self._attempts.unfinished_tasks(), self._stop)
        if again is None:
            return False
        if failed is not None and error is not None:
            self._attempts.discard(failed)
            self._events.failed(self._of(failed), "lost", error, self._seconds(failed))
            self._events.runs_again(self._of(failed), error)
        for number, task in again.items():
            self._tasks[number] = task
            self._results.pop(number, None)
        self._stop(again)
        for number in self._attempts.unfinished_tasks():
            if not self._attempts.is_running(number):
                self._start(number)
        return True

    def _stop(self, tasks: Iterable[int]) -> None:
        """Stop all attempts of these tasks, and mark the tasks as unfinished."""
        for task in tasks:
            self._took_s.pop(task, None)
            for attempt in self._attempts.invalidate(task):
                if (future := self._futures.pop(attempt, None)) is None:
                    continue  # it has ended, and its end is being handled
                if future.cancel():
                    self._attempts.cancel_pending(attempt)
                else:
                    self._stop_attempt(attempt, future)

    def _stop_attempt(self, attempt: Attempt, future: Future[R]) -> None:
        self._stopped[future] = attempt
        self._executor.stop(future)
        self._events.stopped(self._of(attempt), self._seconds(attempt))

    def _running(self) -> list[Attempt]:
        """Return the attempts that run, and note when each was first seen."""
        now = time.monotonic()
        running = [attempt for attempt, future in self._futures.items() if future.running()]
        for attempt in running:
            if attempt not in self._began_s:
                self._began_s[attempt] = now
                worker = self._executor.worker_of(self._futures[attempt])
                self._events.running(self._of(attempt), worker)
        return running

    def _seconds(self, attempt: Attempt) -> float:
        """Return for how long an attempt has been seen running."""
        now = time.monotonic()
        return now - self._began_s.get(attempt, now)

    def _of(self, attempt: Attempt) -> TaskAttempt:
        name = self._tasks[attempt.task].name
        return TaskAttempt(attempt, name, attempt in self._speculative)

    def _speculate(self, running: list[Attempt]) -> None:
        """Start speculative attempts of stragglers if workers are idle."""
        now = time.monotonic()
        if len(running) < len(self._futures):
            return  # no worker has begun some of the tasks yet
        single = {
            attempt.task: now - self._began_s[attempt]
            for attempt in running
            if not self._attempts.has_speculative_attempt(attempt.task)
        }
        idle = self._executor.workers - len(running)
        for task in find_stragglers(single, list(self._took_s.values()), len(self._tasks), idle):
            (attempt,) = (each for each in running if each.task == task)
            self._events.straggles(self._of(attempt), single[task])
            self._start(task)

    def _check(self, deadline: Deadline) -> None:
        if self._attempts.unfinished:
            deadline.check(f"{self._attempts.unfinished} of {len(self._tasks)} tasks unfinished")

    def _await_stopped(self) -> None:
        """Wait until stopped attempts have ended and write no more; clean up after them."""
        still = [self._stopped[future] for future in wait(self._stopped, _STOP_TIMEOUT_S).not_done]
        for attempt in sorted(still):
            log.warning(
                "%s, attempt %d, still runs %g s after it was stopped; what it writes is left",
                self._tasks[attempt.task].name,
                attempt.number + 1,
                _STOP_TIMEOUT_S,
            )
        still_running = {attempt.task for attempt in still}
        for task, attempts in self._attempts.repeated():
            if task not in still_running:
                self._spec.cleanup(self._tasks[task], attempts)
