"""The stage runner: results in the order of the tasks, retries, and the error that ends a stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mrflight.errors import (
    DeadlineExceededError,
    JobError,
    JobFailedError,
    MrflightError,
    UserFunctionRaisedError,
    WorkerLostError,
)
from mrflight.events.recorder import Recorder
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from tests.support.commands.scripted import ScriptedTask
from tests.support.jobs.recorded_progress import RecordedProgress
from tests.support.suite.messages import refused


class NoExecutor:
    """An executor for tests that create their futures themselves."""

    workers = 3

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise AssertionError

    def worker_of(self, future: Future[Any]) -> str:
        return ""

    def stop(self, future: Future[Any]) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def tasks(count: int) -> list[ScriptedTask]:
    return [ScriptedTask(number) for number in range(count)]


def ended(result: int | BaseException) -> Future[int]:
    future: Future[int] = Future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def run(
    report: RecordedProgress,
    count: int,
    submit: Callable[[ScriptedTask, int], Future[int]],
    deadline: Deadline = NO_DEADLINE,
) -> list[int]:
    """Run a stage over futures of the test, without a second attempt."""
    stages = StageRunner(NoExecutor(), Recorder(report), deadline, max_failures=1, speculates=False)
    return stages.run("map", TaskSetSpec(tasks(count), submit))


def test_results_are_in_task_order_whatever_ends_first(report: RecordedProgress) -> None:
    futures: list[Future[int]] = [Future() for _ in range(5)]

    def submit(task: ScriptedTask, attempt: int) -> Future[int]:
        if task.number == 4:
            for number in (2, 1, 4, 0, 3):
                futures[number].set_result(10 * number)
        return futures[task.number]

    assert run(report, 5, submit) == [0, 10, 20, 30, 40]
    assert (report.begun, report.done, report.notes) == ([("map", 5)], 5, ["5 done"])


def test_all_tasks_are_submitted_before_the_first_is_waited_for(report: RecordedProgress) -> None:
    submitted: list[int] = []

    def submit(task: ScriptedTask, attempt: int) -> Future[int]:
        submitted.append(task.number)
        assert report.done == 0
        return ended(task.number)

    run(report, 4, submit)
    assert submitted == [0, 1, 2, 3]


def test_tasks_may_end_in_any_order_and_at_any_time(report: RecordedProgress) -> None:
    with ThreadPoolExecutor(3) as pool:
        results = run(
            report,
            40,
            lambda task, _: pool.submit(lambda: task.number**2),
            NO_DEADLINE,
        )
    assert results == [number**2 for number in range(40)]
    assert report.done == 40


def test_a_stage_without_tasks_is_done(report: RecordedProgress) -> None:
    assert run(report, 0, lambda task, _: ended(0), Deadline(time.monotonic() - 1)) == []


@pytest.mark.parametrize("kind", [JobError, WorkerLostError, MrflightError])
def test_the_last_failure_ends_the_stage_with_its_tasks_name(
    report: RecordedProgress, kind: type[MrflightError]
) -> None:
    never: Future[int] = Future()
    futures = [never, ended(kind("wrong")), never]
    with pytest.raises(kind, match="wrong") as failed:
        run(report, 3, lambda task, _: futures[task.number])
    assert failed.value.__notes__ == ["task 1"]
    assert report.done == 0


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyError("wrong"), MemoryError("wrong")])
def test_an_unforeseen_failure_has_its_tasks_name_as_well(
    report: RecordedProgress, error: Exception
) -> None:
    futures = [ended(1), ended(error)]
    with pytest.raises(type(error), match="wrong") as failed:
        run(report, 2, lambda task, _: futures[task.number])
    assert failed.value.__notes__ == ["task 1"]


def test_a_passed_deadline_names_the_unfinished_tasks(report: RecordedProgress) -> None:
    futures: list[Future[int]] = [ended(1), Future(), Future()]
    with refused(DeadlineExceededError):
        run(report, 3, lambda task, _: futures[task.number], Deadline(time.monotonic() - 1))


def test_a_deadline_ends_the_wait(report: RecordedProgress) -> None:
    futures: list[Future[int]] = [ended(1), Future()]
    started = time.monotonic()
    with refused(DeadlineExceededError):
        run(report, 2, lambda task, _: futures[task.number], Deadline(started + 0.05))
    assert time.monotonic() - started >= 0.05


def test_a_deadline_may_be_centuries_away(report: RecordedProgress) -> None:
    far = Deadline(time.monotonic() + 400 * 365 * 86400)
    pending: Future[int] = Future()
    timer = threading.Timer(0.05, pending.set_result, [7])
    timer.start()
    try:
        assert run(report, 1, lambda task, _: pending, far) == [7]
    finally:
        timer.join()


class IgnoringStops(NoExecutor):
    """An executor whose calls continue after they were stopped."""

    def __init__(self) -> None:
        self.stopped: list[Future[Any]] = []

    def worker_of(self, future: Future[Any]) -> str:
        return ""

    def stop(self, future: Future[Any]) -> None:
        self.stopped.append(future)


def test_an_attempt_that_ignores_its_stop_is_not_cleaned_up_and_logged(
    report: RecordedProgress, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks 1 and 2 get speculative attempts, which succeed.

    The first attempt of 2 fails then, and that of 1 never ends.
    """
    monkeypatch.setattr("mrflight.scheduler.task_set._STOP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(
        "mrflight.scheduler.task_set.find_stragglers", lambda running_s, *_: list(running_s)
    )
    slow: dict[int, Future[int]] = {1: Future(), 2: Future()}
    for future in slow.values():
        future.set_running_or_notify_cancel()
    cleaned_up: list[tuple[int, int]] = []

    def submit(task: ScriptedTask, attempt: int) -> Future[int]:
        if task.number not in slow:
            return ended(0)
        if attempt == 0:
            return slow[task.number]
        if task.number == 2:
            slow[2].set_exception(WorkerLostError("stopped"))
        return ended(attempt)

    executor = IgnoringStops()
    results = StageRunner(executor, Recorder(report)).run(
        "map",
        TaskSetSpec(
            tasks(3),
            submit,
            cleanup=lambda task, attempts: cleaned_up.append((task.number, attempts)),
        ),
    )
    assert results == [0, 1, 1]
    assert executor.stopped == [slow[1]]
    assert cleaned_up == [(2, 2)]
    (record,) = caplog.records
    assert record.getMessage() == (
        "task 1, attempt 1, still runs 0.1 s after it was stopped; what it writes is left"
    )


def test_failures_are_counted_by_stage(report: RecordedProgress) -> None:
    stages = StageRunner(NoExecutor(), Recorder(report))
    for stage, failures in (("check", 1), ("map", 2), ("map", 1), ("reduce", 0)):
        first: Iterator[int | Exception] = iter([JobFailedError("again")] * failures + [7])
        spec = TaskSetSpec(tasks(1), lambda *_, first=first: ended(next(first)))
        assert stages.run(stage, spec) == [7]
    assert stages.failed == {"check": 1, "map": 3, "reduce": 0}
    assert stages.started == {"check": 2, "map": 5, "reduce": 1}


@pytest.mark.parametrize("again", [True, False])
def test_what_a_users_function_raised_is_tried_again_before_other_tasks(
    again: bool, report: RecordedProgress
) -> None:
    bug = UserFunctionRaisedError("the map f raised:\nTraceback\nKeyError: 'x'")
    begun: list[tuple[int, int]] = []
    first: list[Future[int]] = []

    def submit(task: ScriptedTask, attempt: int) -> Future[int]:
        begun.append((task.number, attempt))
        if len(begun) <= 3:  # no worker begins a task until all are submitted
            first.append(Future())
            if len(first) == 3:
                first[1].set_exception(bug)
            return first[-1]
        return ended(bug if again and attempt == 1 else task.number)

    stages = StageRunner(NoExecutor(), Recorder(report))
    if again:
        with pytest.raises(UserFunctionRaisedError, match="KeyError") as raised:
            stages.run("map", TaskSetSpec(tasks(3), submit))
        assert raised.value.__notes__ == ["task 1, attempt 2"]
    else:
        assert stages.run("map", TaskSetSpec(tasks(3), submit)) == [0, 1, 2]
    assert begun == [(0, 0), (1, 0), (2, 0), (1, 1), (0, 0), (2, 0)]
    assert report.lines == [
        "task 1: attempt 1 of 4 failed and is retried: the map f raised: KeyError: 'x'"
    ]
    assert (stages.started, stages.failed) == ({"map": 4}, {"map": 1 + again})


def test_few_retries_come_before_other_tasks(report: RecordedProgress) -> None:
    """Each of them submits the tasks that wait again. The last task waits until all are done."""
    last = 19
    waiting: list[Future[int]] = []
    first: list[Future[int]] = [Future() for _ in range(last)]

    def submit(task: ScriptedTask, attempt: int) -> Future[int]:
        if task.number == last:
            waiting.append(Future())
            if len(waiting) == 1:
                for number, future in enumerate(first):
                    future.set_exception(UserFunctionRaisedError(f"the map f raised {number}"))
            return waiting[-1]
        if (task.number, attempt) == (last - 1, 1):
            waiting[-1].set_result(last)
        return ended(task.number) if attempt else first[task.number]

    stages = StageRunner(NoExecutor(), Recorder(report))
    assert stages.run("map", TaskSetSpec(tasks(last + 1), submit)) == list(range(last + 1))
    assert len(waiting) == 1 + 8
    assert (stages.started, stages.failed) == ({"map": 2 * last + 1}, {"map": last})


def test_a_failure_is_reported_in_one_line(report: RecordedProgress) -> None:
    futures = [ended(JobFailedError("f raised:\nTraceback\n  line 3\nKeyError: 'x'")), ended(7)]
    stages = StageRunner(NoExecutor(), Recorder(report))
    spec = TaskSetSpec(tasks(1), lambda task, attempt: futures[attempt])
    assert stages.run("map", spec) == [7]
    assert report.lines == ["task 0: attempt 1 of 4 failed and is retried: f raised: KeyError: 'x'"]
