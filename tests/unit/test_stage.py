"""A stage gives results in the order of its tasks, or ends at its first failure or its deadline."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from mrflight.errors import DeadlineExceededError, JobError, MrflightError, WorkerLostError
from mrflight.stage import run_stage


@dataclass(frozen=True)
class Numbered:
    number: int

    @property
    def name(self) -> str:
        return f"task {self.number}"


def tasks(count: int) -> list[Numbered]:
    return [Numbered(number) for number in range(count)]


def ended(result: int | BaseException) -> Future[int]:
    future: Future[int] = Future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def nothing() -> None:
    pass


def test_results_are_in_the_order_of_the_tasks_whatever_ends_first() -> None:
    futures: list[Future[int]] = [Future() for _ in range(5)]
    left = [3, 0, 4, 1]

    def end_another() -> None:
        if left:
            number = left.pop()
            futures[number].set_result(10 * number)

    futures[2].set_result(20)
    results = run_stage(tasks(5), lambda task: futures[task.number], end_another)
    assert results == [0, 10, 20, 30, 40]


def test_all_tasks_are_submitted_before_the_first_is_waited_for() -> None:
    submitted: list[int] = []
    seen: list[int] = []

    def submit(task: Numbered) -> Future[int]:
        submitted.append(task.number)
        return ended(task.number)

    run_stage(tasks(4), submit, lambda: seen.append(len(submitted)))
    assert seen == [4] * 4


def test_real_workers_end_in_their_own_time() -> None:
    done: list[None] = []
    with ThreadPoolExecutor(3) as pool:
        results = run_stage(
            tasks(40),
            lambda task: pool.submit(lambda: task.number**2),
            lambda: done.append(None),
            time.monotonic() + 60,
        )
    assert results == [number**2 for number in range(40)]
    assert len(done) == 40


def test_a_stage_without_tasks_is_done() -> None:
    assert run_stage([], lambda task: ended(0), nothing, time.monotonic() - 1) == []


@pytest.mark.parametrize("kind", [JobError, WorkerLostError, MrflightError])
def test_the_first_failure_ends_the_stage_with_its_tasks_name(kind: type[MrflightError]) -> None:
    never: Future[int] = Future()
    futures = [never, ended(kind("wrong")), never]
    with pytest.raises(kind, match="wrong") as failed:
        run_stage(tasks(3), lambda task: futures[task.number], nothing)
    assert failed.value.__notes__ == ["task 1"]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyError("wrong"), MemoryError("wrong")])
def test_a_failure_that_nobody_foresaw_has_its_tasks_name_as_well(error: Exception) -> None:
    futures = [ended(1), ended(error)]
    with pytest.raises(type(error), match="wrong") as failed:
        run_stage(tasks(2), lambda task: futures[task.number], nothing)
    assert failed.value.__notes__ == ["task 1"]


def test_a_failed_task_is_not_reported_as_done() -> None:
    done: list[None] = []
    futures = [ended(JobError("wrong"))]
    with pytest.raises(JobError):
        run_stage(tasks(1), lambda task: futures[task.number], lambda: done.append(None))
    assert done == []


def test_a_deadline_that_has_passed_is_named_with_what_is_unfinished() -> None:
    futures: list[Future[int]] = [ended(1), Future(), Future()]
    with pytest.raises(DeadlineExceededError) as late:
        run_stage(
            tasks(3), lambda task: futures[task.number], nothing, deadline=time.monotonic() - 1
        )
    assert "2 of 3 tasks unfinished" in str(late.value)
    assert "job.timeout" in str(late.value)


def test_a_deadline_ends_the_wait() -> None:
    futures: list[Future[int]] = [ended(1), Future()]
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="1 of 2 tasks unfinished"):
        run_stage(tasks(2), lambda task: futures[task.number], nothing, deadline=started + 0.05)
    assert 0.05 <= time.monotonic() - started < 10


def test_a_deadline_that_is_far_away_does_no_harm() -> None:
    far = time.monotonic() + 400 * 365 * 86400
    pending: Future[int] = Future()
    timer = threading.Timer(0.05, pending.set_result, [7])
    timer.start()
    try:
        assert run_stage(tasks(1), lambda task: pending, nothing, far) == [7]
    finally:
        timer.join()
