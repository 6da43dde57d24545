"""The attempts of a stage: which task gets another one, and which one counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.errors import (
    BadRowError,
    IncompletePartitionError,
    JobFailedError,
    MrflightError,
    OutputError,
    ServerUnavailableError,
    UserFunctionError,
    UserFunctionRaisedError,
    WorkerLostError,
)
from mrflight.scheduler.attempts import Attempt, StageAttempts, find_stragglers, is_retryable

LOST = WorkerLostError("gone")


def test_a_failed_attempt_is_followed_by_the_next_up_to_the_limit() -> None:
    attempts = StageAttempts(2, max_failures=3)
    assert [attempts.start(task) for task in (0, 1)] == [Attempt(0, 0), Attempt(1, 0)]
    assert attempts.fail(Attempt(0, 0), LOST)
    assert attempts.start(0) == Attempt(0, 1)
    assert attempts.fail(Attempt(0, 1), LOST)
    assert attempts.start(0) == Attempt(0, 2)
    assert not attempts.fail(Attempt(0, 2), LOST)
    assert (attempts.started, attempts.failed, attempts.unfinished) == (4, 3, 2)


def test_an_error_that_is_not_retryable_ends_the_stage_at_once() -> None:
    attempts = StageAttempts(1, max_failures=4)
    assert not attempts.fail(attempts.start(0), BadRowError("a.csv, line 3: no number"))


def test_with_a_limit_of_one_nothing_is_retried() -> None:
    attempts = StageAttempts(1, max_failures=1)
    assert not attempts.fail(attempts.start(0), LOST)


def test_the_first_attempt_to_succeed_counts_and_the_others_are_stopped() -> None:
    attempts = StageAttempts(1)
    first, second = attempts.start(0), attempts.start(0)
    assert attempts.has_speculative_attempt(0)
    assert attempts.succeed(second) == {first}
    assert attempts.unfinished == 0
    assert not attempts.is_running(0)


def test_a_failed_speculative_attempt_leaves_the_first_one_running() -> None:
    attempts = StageAttempts(1)
    first, second = attempts.start(0), attempts.start(0)
    assert attempts.fail(second, LOST)
    assert attempts.is_running(0)
    assert not attempts.has_speculative_attempt(0)
    assert attempts.succeed(first) == set()


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (LOST, True),
        (ServerUnavailableError("gone"), True),
        (IncompletePartitionError("fewer"), True),
        (JobFailedError("the disk is full"), True),
        (UserFunctionRaisedError("raised"), True),
        (OSError("no route"), True),
        (MemoryError(), True),
        (UserFunctionError("not found"), False),
        (BadRowError("a row"), False),
        (OutputError("no such column"), False),
        (KeyboardInterrupt(), False),
        (SystemExit(), False),
    ],
    ids=repr,
)
def test_which_errors_are_retryable(error: BaseException, retryable: bool) -> None:
    assert is_retryable(error) is retryable


def raised(message: str, *, by_system: bool = False) -> UserFunctionRaisedError:
    error = UserFunctionRaisedError(message)
    error.has_system_cause = by_system
    return error


@pytest.mark.parametrize(
    ("errors", "failures"),
    [
        ([raised("a: KeyError")] * 4, 2),
        ([raised("a: KeyError"), raised("b: KeyError"), raised("a: KeyError")], 3),
        ([raised("a: KeyError"), LOST, raised("a: KeyError")], 3),
        ([raised(f"{number}: KeyError") for number in range(4)], 4),
        ([raised("no route to host", by_system=True)] * 4, 4),
        ([raised("a: KeyError", by_system=True), raised("a: KeyError")] * 2, 4),
        ([LOST] * 4, 4),
    ],
)
def test_a_task_is_not_tried_again_after_two_equal_errors_of_a_users_function(
    errors: list[MrflightError], failures: int
) -> None:
    attempts = StageAttempts(1, max_failures=4)
    while attempts.fail(attempts.start(0), errors[attempts.failed]):
        assert attempts.failed < len(errors)
    assert attempts.failed == failures


def test_equal_errors_of_different_tasks_are_the_first_of_each() -> None:
    attempts = StageAttempts(2, max_failures=4)
    assert attempts.fail(attempts.start(0), raised("KeyError"))
    assert attempts.fail(attempts.start(1), raised("KeyError"))


def test_a_limit_of_one_attempt_bounds_what_a_users_function_raises() -> None:
    attempts = StageAttempts(1, max_failures=1)
    assert not attempts.fail(attempts.start(0), raised("KeyError"))


def test_a_straggler_takes_twice_the_median() -> None:
    done = [10.0, 10.0, 11.0]
    assert find_stragglers({7: 19.0}, done, 4, idle=2) == []
    assert find_stragglers({7: 21.0}, done, 4, idle=2) == [7]


def test_the_median_of_an_even_number_of_tasks_is_between_the_two_in_the_middle() -> None:
    done = [8.0, 30.0, 12.0, 5.0]
    assert find_stragglers({7: 19.9}, done, 4, idle=2) == []
    assert find_stragglers({7: 20.1}, done, 4, idle=2) == [7]


def test_a_straggler_is_at_least_two_seconds_late() -> None:
    assert find_stragglers({7: 2.0}, [0.1, 0.1], 3, idle=1) == []
    assert find_stragglers({7: 2.2}, [0.1, 0.1], 3, idle=1) == [7]


def test_there_are_no_stragglers_before_half_of_the_tasks_are_done() -> None:
    assert find_stragglers({7: 1000.0}, [1.0] * 4, 10, idle=3) == []
    assert find_stragglers({7: 1000.0}, [1.0] * 5, 10, idle=3) == [7]
    assert find_stragglers({0: 1000.0}, [], 1, idle=3) == []  # nothing to compare with


def test_the_slowest_stragglers_come_first_up_to_the_idle_workers() -> None:
    running = {1: 30.0, 2: 50.0, 3: 40.0, 4: 3.0}
    assert find_stragglers(running, [1.0] * 9, 13, idle=2) == [2, 3]
    assert find_stragglers(running, [1.0] * 9, 13, idle=9) == [2, 3, 1]
    assert find_stragglers(running, [1.0] * 9, 13, idle=0) == []


@given(
    st.dictionaries(st.integers(0, 50), st.floats(0, 1e4)),
    st.lists(st.floats(0, 1e4)),
    st.integers(1, 100),
    st.integers(-2, 10),
)
def test_stragglers_are_running_tasks_and_no_more_than_idle_workers(
    running: dict[int, float], done: list[float], tasks: int, idle: int
) -> None:
    chosen = find_stragglers(running, done, tasks, idle)
    assert len(chosen) == len(set(chosen)) <= max(0, idle)
    assert set(chosen) <= running.keys()
