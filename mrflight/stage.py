"""Runs the tasks of a stage, whatever the executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Protocol, TypeVar

from mrflight.errors import DeadlineExceededError
from mrflight.progress import ProgressReport

if TYPE_CHECKING:
    from mrflight.executors.base import Executor

T = TypeVar("T", bound="Task")
R = TypeVar("R")


FIRST_ATTEMPT = 0


class Task(Protocol):
    """Anything with a name for messages."""

    @property
    def name(self) -> str: ...


class Stages:
    """Runs the stages of one job, one after the other, and tells how they go."""

    def __init__(
        self, executor: Executor, progress: ProgressReport, deadline: float | None = None
    ) -> None:
        """``deadline`` is on the monotonic clock."""
        self._progress = progress
        self._deadline = deadline
        self.submit = executor.submit
        self.workers = executor.workers

    def run(
        self,
        stage: str,
        tasks: Sequence[T],
        submit: Callable[[T], Future[R]],
        note: Callable[[list[R]], str] = lambda results: f"{len(results)} done",
    ) -> list[R]:
        """As `run_stage`; ``note`` makes of the results what is told at the end."""
        self._progress.begin(stage, len(tasks))
        results = run_stage(tasks, submit, self._progress.advance, self._deadline)
        self._progress.end(note(results))
        return results

    def wait(self, future: Future[R]) -> R:
        """The result of one future; DeadlineExceededError when the clock passes the deadline."""
        try:
            return future.result(_seconds_left(self._deadline))
        except TimeoutError as error:
            raise DeadlineExceededError(
                "the job's timeout passed before its first task; raise job.timeout"
            ) from error


def run_stage(
    tasks: Sequence[T],
    submit: Callable[[T], Future[R]],
    on_done: Callable[[], None],
    deadline: float | None = None,
) -> list[R]:
    """The results of all tasks in their order.

    ``on_done`` is called as each finishes. The first task that fails ends the
    stage: its error is raised with the task's name as a note. Raises
    DeadlineExceededError when the monotonic clock passes ``deadline``.
    """
    futures = {submit(task): i for i, task in enumerate(tasks)}
    results: dict[int, R] = {}
    completed = as_completed(futures, _seconds_left(deadline))
    while len(results) < len(tasks):
        try:
            future = next(completed)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"the job's timeout passed with {len(tasks) - len(results)} of {len(tasks)} tasks "
                "unfinished; raise job.timeout"
            ) from error
        results[futures[future]] = _result(future, tasks[futures[future]])
        on_done()
    return [results[i] for i in range(len(tasks))]


def _seconds_left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    return min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX)


def _result(future: Future[R], task: Task) -> R:
    try:
        return future.result()
    except Exception as error:
        error.add_note(task.name)
        raise
