"""A deadline limits timeouts, and is named as the cause of errors that come after it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from mrflight.errors import (
    BadRowError,
    DeadlineExceededError,
    MrflightError,
    NoDataServersError,
    ServerUnavailableError,
)
from mrflight.system import deadlines
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, NO_DEADLINE, Deadline, Timeouts
from tests.support.suite.messages import refused

SERVER = "grpc+tcp://127.0.0.1:1"
OVER = Deadline(time.monotonic() - 1)
IN_A_DAY = Deadline(time.monotonic() + 86_400)


def about_a_server(error: MrflightError) -> MrflightError:
    error.location = SERVER
    return error


def test_without_a_deadline_timeouts_are_unchanged() -> None:
    assert NO_DEADLINE.clamp(DEFAULT_TIMEOUTS) == DEFAULT_TIMEOUTS
    assert not NO_DEADLINE.expired()


def test_timeouts_are_limited_to_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    left = Deadline(1_060.0).clamp(Timeouts(call_s=30.0, stream_s=3600.0, reconnect_s=600.0))
    assert (left.call_s, left.stream_s, left.reconnect_s) == (30.0, 60.0, 60.0)


def test_an_expired_deadline_leaves_short_calls_and_no_reconnects() -> None:
    assert OVER.expired()
    left = OVER.clamp(DEFAULT_TIMEOUTS)
    assert left.call_s == left.stream_s == 0.01
    assert left.reconnect_s == 0


@pytest.mark.parametrize(
    "kind", [ServerUnavailableError, DeadlineExceededError, NoDataServersError]
)
def test_an_error_of_a_server_after_the_deadline_is_attributed_to_it(
    kind: type[MrflightError],
) -> None:
    with refused(DeadlineExceededError), OVER.attribute_timeouts():
        raise about_a_server(kind("it is gone"))


@pytest.mark.parametrize(
    ("deadline", "error"),
    [
        (OVER, BadRowError("line 7")),
        (OVER, DeadlineExceededError("the job's timeout passed with 2 of 3 tasks unfinished")),
        (IN_A_DAY, about_a_server(ServerUnavailableError("it is gone"))),
        (NO_DEADLINE, about_a_server(ServerUnavailableError("it is gone"))),
    ],
)
def test_other_errors_are_not_attributed_to_the_deadline(
    deadline: Deadline, error: MrflightError
) -> None:
    with pytest.raises(type(error)) as raised, deadline.attribute_timeouts():
        raise error
    assert raised.value is error


def test_a_call_is_run_until_the_deadline() -> None:
    gate = threading.Event()
    try:
        deadline = Deadline(time.monotonic() + 0.05)
        with refused(DeadlineExceededError):
            deadline.run(gate.wait, "it was asked")
        assert deadline.expired()
    finally:
        gate.set()


@pytest.mark.parametrize("deadline", [NO_DEADLINE, IN_A_DAY])
def test_a_call_that_ends_in_time_returns_or_raises(deadline: Deadline) -> None:
    assert deadline.run(lambda: 7, "it was asked") == 7
    for error in (TimeoutError("its own"), BadRowError("line 7")):
        with pytest.raises(type(error)) as raised:
            deadline.run(lambda error=error: throw(error), "it was asked")  # type: ignore[misc]
        assert raised.value is error


def throw(error: Exception) -> None:
    raise error
