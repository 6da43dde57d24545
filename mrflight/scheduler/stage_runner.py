"""Runs the task sets of a job one after the other, and counts their attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from mrflight.scheduler.attempts import MAX_TASK_FAILURES, StageAttempts
from mrflight.scheduler.task_set import Task, TaskSet, TaskSetSpec
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from mrflight.system.progress import ProgressReport, QuietProgress

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor

T = TypeVar("T", bound=Task)
R = TypeVar("R")

Note = Callable[[list[R]], str]
"""Makes the line that ends the progress of a stage from its results."""


class StageRunner:
    """Runs the task sets of one job, each with the name of its stage, and reports progress."""

    def __init__(
        self,
        executor: Executor,
        progress: ProgressReport,
        deadline: Deadline = NO_DEADLINE,
        max_failures: int = MAX_TASK_FAILURES,
        *,
        speculates: bool = True,
    ) -> None:
        """A stage ends when one of its tasks has failed ``max_failures`` times.

        ``speculates``: stragglers get a second attempt.
        """
        self._executor = executor
        self.progress = progress
        self._deadline = deadline
        self._max_failures = max_failures
        self._speculates = speculates
        self.submit = executor.submit
        self.workers = executor.workers
        self.started: Counter[str] = Counter()
        """Attempts by stage."""
        self.failed: Counter[str] = Counter()
        """Attempts that count as failures of their tasks, by stage."""
        self._next_number: Counter[str] = Counter()
        self.notify = progress.notify

    def run(
        self,
        stage: str,
        spec: TaskSetSpec[T, R],
        note: Note[R] | None = None,
    ) -> list[R]:
        """Run a task set and return the results in the order of the tasks.

        A stage that runs again continues the numbers of its attempts.
        Raises DeadlineExceededError, or the error of an attempt, with the task's name as a note,
        if it is not retryable or the task has failed too often.
        """
        self.progress.begin(stage, len(spec.tasks), spec.size_bytes, self.workers)
        results = self._run(stage, spec, self.progress)
        self.progress.end(note(results) if note else f"{len(results)} done")
        return results

    def run_quietly(self, stage: str, spec: TaskSetSpec[T, R]) -> list[R]:
        """Run a task set beside or within another stage: only incidents are reported."""
        return self._run(stage, spec, _NoticesOnly(self.progress))

    def _run(self, stage: str, spec: TaskSetSpec[T, R], progress: ProgressReport) -> list[R]:
        attempts = StageAttempts(len(spec.tasks), self._max_failures, self._next_number[stage])
        task_set = TaskSet(spec, attempts, self._executor, progress, speculates=self._speculates)
        try:
            return task_set.run(self._deadline)
        finally:
            self.started[stage] += attempts.started
            self.failed[stage] += attempts.failed
            self._next_number[stage] = max(self._next_number[stage], attempts.next_number)


class _NoticesOnly(QuietProgress):
    """Passes notices on, and hides the progress of a task set within another stage."""

    def __init__(self, progress: ProgressReport) -> None:
        self._progress = progress

    def notify(self, line: str) -> None:
        self._progress.notify(line)
