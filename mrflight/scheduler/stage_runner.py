"""The stages of a job, one after the other: what they start, and what they tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from mrflight.scheduler.attempts import LIMIT, StageAttempts
from mrflight.scheduler.recovery import NO_RECOVERY, Recovery
from mrflight.scheduler.task_set import Task, TaskSet, nothing
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from mrflight.system.progress import ProgressReport

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor

T = TypeVar("T", bound=Task)
R = TypeVar("R")


class StageRunner:
    """Runs the stages of one job, one after the other, and tells how they go."""

    def __init__(
        self,
        executor: Executor,
        progress: ProgressReport,
        deadline: Deadline = NO_DEADLINE,
        limit: int = LIMIT,
        *,
        speculates: bool = True,
    ) -> None:
        """A task may fail ``limit`` times.

        ``speculates``: slow tasks get a second attempt.
        """
        self._executor = executor
        self._progress = progress
        self._deadline = deadline
        self._limit = limit
        self._speculates = speculates
        self.submit = executor.submit
        self.workers = executor.workers
        self.started: Counter[str] = Counter()
        """Attempts by stage."""
        self.failed: Counter[str] = Counter()
        """Those that count as failures of their tasks, by stage."""
        self._next_number: Counter[str] = Counter()
        self.notify = progress.notify

    def run(
        self,
        stage: str,
        tasks: Sequence[T],
        submit: Callable[[T, int], Future[R]],
        note: Callable[[list[R]], str] = lambda results: f"{len(results)} done",
        tidy_up: Callable[[T, int], None] = nothing,
        recovery: Recovery[T] = NO_RECOVERY,
    ) -> list[R]:
        """The results of all tasks in their order.

        ``submit`` starts an attempt of a task; ``note`` makes of the results what is told at the
        end; ``tidy_up`` is called for each task that had several attempts, with a number that is
        above all of theirs, once all of them have ended. A stage that is run for a second time
        goes on with the numbers of its attempts. ``recovery`` says what to do where servers are
        lost.
        Raises the error of an attempt, with the task's name as a note, where it is not retryable
        or the last that the task had; DeadlineExceededError.
        """
        self._progress.begin(stage, len(tasks))
        results = self._run(stage, tasks, submit, tidy_up, recovery, self._progress)
        self._progress.end(note(results))
        return results

    def run_quietly(
        self,
        stage: str,
        tasks: Sequence[T],
        submit: Callable[[T, int], Future[R]],
        tidy_up: Callable[[T, int], None] = nothing,
        recovery: Recovery[T] = NO_RECOVERY,
    ) -> list[R]:
        """As `run`, without telling how it goes: beside or within another stage."""
        return self._run(stage, tasks, submit, tidy_up, recovery, _WithinAStage(self._progress))

    def _run(
        self,
        stage: str,
        tasks: Sequence[T],
        submit: Callable[[T, int], Future[R]],
        tidy_up: Callable[[T, int], None],
        recovery: Recovery[T],
        progress: ProgressReport,
    ) -> list[R]:
        attempts = StageAttempts(len(tasks), self._limit, self._next_number[stage])
        running = TaskSet(
            attempts, self._executor, progress, tasks, submit, tidy_up, recovery, self._speculates
        )
        try:
            return running.run(self._deadline)
        finally:
            self.started[stage] += attempts.started
            self.failed[stage] += attempts.failed
            self._next_number[stage] = max(self._next_number[stage], attempts.next_number)


class _WithinAStage(ProgressReport):
    """Of a stage that is run within another one only what went wrong is told."""

    def __init__(self, progress: ProgressReport) -> None:
        self._progress = progress

    def begin(self, stage: str, tasks: int) -> None: ...

    def advance(self) -> None: ...

    def end(self, note: str) -> None: ...

    def notify(self, line: str) -> None:
        self._progress.notify(line)
