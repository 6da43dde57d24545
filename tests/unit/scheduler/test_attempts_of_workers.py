"""The stage runner over real workers: retries, speculative attempts, and what ends a stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from mrflight.errors import DeadlineExceededError, InputError, JobFailedError, WorkerLostError
from mrflight.events.recorder import Recorder
from mrflight.runtime.local.executor import LocalExecutor
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.system.deadlines import NO_DEADLINE, Deadline
from tests.support.commands.executors import local_executor
from tests.support.commands.scripted import ScriptedTask, perform
from tests.support.jobs.recorded_progress import RecordedProgress
from tests.support.suite.messages import refused


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with local_executor(3) as workers:
        yield workers


@pytest.fixture(autouse=True)
def _who_runs_alone_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is a straggler once all others are done, however long they took."""

    def last(running_s: Mapping[int, float], done_s: Sequence[float], tasks: int, idle: int) -> Any:
        return list(running_s) if len(done_s) == tasks - 1 and idle else []

    monkeypatch.setattr("mrflight.scheduler.task_set.find_stragglers", last)


def perform_all(
    executor: LocalExecutor,
    report: RecordedProgress,
    *scripts: tuple[str, ...],
    speculates: bool = False,
) -> tuple[list[tuple[int, int]], StageRunner, dict[int, int]]:
    """Run scripted tasks; return the attempt of each that counts.

    And the runner, and the number of attempts of the tasks that were cleaned up.
    """
    repeated: dict[int, int] = {}
    stages = StageRunner(executor, Recorder(report), NO_DEADLINE, speculates=speculates)
    results = stages.run(
        "map",
        TaskSetSpec(
            [ScriptedTask(number, script) for number, script in enumerate(scripts)],
            lambda task, attempt: stages.submit(perform, task, attempt),
            cleanup=lambda task, attempts: repeated.update({task.number: attempts}),
        ),
    )
    return results, stages, repeated


@pytest.mark.parametrize("how", ["raise", "crash", "exit", "kill"])
def test_a_failed_task_is_retried(
    executor: LocalExecutor, report: RecordedProgress, how: str
) -> None:
    scripts = [(), (how,), (), (how, how, how)]
    results, stages, repeated = perform_all(executor, report, *scripts)
    assert results == [(0, 0), (1, 1), (2, 0), (3, 3)]
    assert stages.started == {"map": 8}
    assert stages.failed == {"map": 4}
    assert repeated == {1: 2, 3: 4}
    assert len(report.lines) == 4
    assert sum(line.startswith("task 3: attempt 2 of 4 failed") for line in report.lines) == 1


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("raise", JobFailedError),
        ("crash", ZeroDivisionError),
        ("kill", WorkerLostError),
    ],
)
def test_the_fourth_failure_of_a_task_ends_the_stage(
    executor: LocalExecutor, report: RecordedProgress, how: str, kind: type[Exception]
) -> None:
    with refused(kind) as failed:
        perform_all(executor, report, (), (how,) * 4)
    assert failed.value.__notes__ == ["task 1, attempt 4"]
    assert len(report.lines) == 3


def test_an_error_that_is_not_retryable_is_not_retried(
    executor: LocalExecutor, report: RecordedProgress
) -> None:
    with refused(InputError) as failed:
        perform_all(executor, report, (), ("refuse",))
    assert failed.value.__notes__ == ["task 1"]
    assert report.lines == []


def test_a_straggler_gets_a_speculative_attempt_and_is_stopped(
    executor: LocalExecutor, report: RecordedProgress
) -> None:
    results, stages, repeated = perform_all(
        executor, report, (), ("hang",), (), (), speculates=True
    )
    assert results == [(0, 0), (1, 1), (2, 0), (3, 0)]
    assert stages.started == {"map": 5}
    assert stages.failed == {"map": 0}
    assert repeated == {1: 2}
    (line,) = report.lines
    assert line.startswith("task 1 has taken ")
    again, _, _ = perform_all(executor, report, (), (), ())  # all workers are available again
    assert again == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.slow
def test_without_speculation_a_straggler_is_awaited(
    executor: LocalExecutor, report: RecordedProgress
) -> None:
    looks = 0

    class SomeLooksLater(Deadline):
        """It passes some looks at the tasks after the others are done."""

        def expired(self) -> bool:
            nonlocal looks
            looks += report.done == 2
            return looks > 5

    stages = StageRunner(executor, Recorder(report), SomeLooksLater(), speculates=False)
    scripts = [ScriptedTask(0, ()), ScriptedTask(1, ("hang",)), ScriptedTask(2, ())]
    spec = TaskSetSpec(scripts, lambda task, attempt: stages.submit(perform, task, attempt))
    with refused(DeadlineExceededError):
        stages.run("map", spec)
    assert (stages.started, report.lines) == ({"map": 3}, [])


def test_a_failed_speculative_attempt_does_not_end_the_straggler(
    executor: LocalExecutor, report: RecordedProgress
) -> None:
    results, stages, _ = perform_all(
        executor, report, (), ("hang", "kill"), (), (), speculates=True
    )
    assert results == [(0, 0), (1, 2), (2, 0), (3, 0)]
    assert (stages.started, stages.failed) == ({"map": 6}, {"map": 1})
