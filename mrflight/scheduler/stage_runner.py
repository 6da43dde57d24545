"""Runs the task sets of a job one after the other, and counts their attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from mrflight.events.partition_sizes import partitions_written
from mrflight.events.recorder import Recorder
from mrflight.runtime.task_call import TaskCall
from mrflight.scheduler.attempts import MAX_TASK_FAILURES, StageAttempts
from mrflight.scheduler.stage_events import StageEvents
from mrflight.scheduler.task_set import Task, TaskSet, TaskSetSpec
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from mrflight.system.log_label import current_label

if TYPE_CHECKING:
    from mrflight.runtime.executor import Executor

T = TypeVar("T", bound=Task)
R = TypeVar("R")
P = ParamSpec("P")

Note = Callable[[list[R]], str]
"""Makes the line that ends the progress of a stage from its results."""


class StageRunner:
    """Runs the task sets of one job, each with the name of its stage, and records what they do."""

    def __init__(
        self,
        executor: Executor,
        events: Recorder,
        deadline: Deadline = NO_DEADLINE,
        max_failures: int = MAX_TASK_FAILURES,
        *,
        speculates: bool = True,
        job: str = "",
    ) -> None:
        """A stage ends when one of its tasks has failed ``max_failures`` times.

        ``job`` is the id of the job, for logs.
        ``speculates``: stragglers get a second attempt.
        """
        self._executor = executor
        self.events = events
        self._deadline = deadline
        self._max_failures = max_failures
        self._speculates = speculates
        self.workers = executor.workers
        self.started: Counter[str] = Counter()
        """Attempts by stage."""
        self.failed: Counter[str] = Counter()
        """Attempts that count as failures of their tasks, by stage."""
        self._next_number: Counter[str] = Counter()
        self._job = job
        self._numbers: dict[str, int] = {}

    def record_partitions(
        self, stage: str, shuffle: str, rows: Sequence[int], size_bytes: Sequence[int]
    ) -> None:
        """Record what the last stage of this name wrote to each partition of its shuffle."""
        number = self._numbers.get(stage)
        if number is not None:
            self.events.record(partitions_written(number, shuffle, rows, size_bytes))

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a function of the current attempt in a worker, which reports what it took.

        A task set opens the `Reported` that the future really has.
        """
        call = TaskCall(function, current_label())
        return cast(Future[R], self._executor.submit(call, *args, **kwargs))

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
        return self._run(stage, spec, note or _count_done, within=False)

    def run_quietly(self, stage: str, spec: TaskSetSpec[T, R]) -> list[R]:
        """Run a task set beside or within another stage: only incidents are reported."""
        return self._run(stage, spec, _count_done, within=True)

    def _run(self, stage: str, spec: TaskSetSpec[T, R], note: Note[R], *, within: bool) -> list[R]:
        attempts = StageAttempts(len(spec.tasks), self._max_failures, self._next_number[stage])
        events = StageEvents(self.events, self._job, stage)
        if not within:
            self._numbers[stage] = events.number
        task_set = TaskSet(spec, attempts, self._executor, events, speculates=self._speculates)
        size_bytes, runs = spec.size_bytes, spec.runs
        events.begin(len(spec.tasks), size_bytes, self.workers, within=within, runs=runs)
        try:
            results = task_set.run(self._deadline)
            events.end(note(results))
            return results
        except BaseException:
            events.end(failed=True)
            raise
        finally:
            self.started[stage] += attempts.started
            self.failed[stage] += attempts.failed
            self._next_number[stage] = max(self._next_number[stage], attempts.next_number)


def _count_done(results: list[R]) -> str:
    return f"{len(results)} done"
