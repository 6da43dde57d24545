"""Calls are retried for the given errors, for a time, and until they are cancelled."""

from __future__ import annotations

import threading
import time

import pytest

from mrflight.system.retry import retry_with_backoff

RETRY_FOR_S = 86_400.0


class Failing:
    """Raises an error so many times, and then answers."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left = times
        self.error = error
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "here"


def test_a_call_is_retried_until_it_answers() -> None:
    ask, noted = Failing(3, KeyError("soon")), []
    assert retry_with_backoff(ask, RETRY_FOR_S, (KeyError,), noted.append) == "here"
    assert ask.asked == 4
    assert noted == [ask.error] * 3


def test_without_time_to_retry_there_is_one_call_and_no_note() -> None:
    ask, noted = Failing(1, KeyError("soon")), []
    with pytest.raises(KeyError, match="soon"):
        retry_with_backoff(ask, 0.0, (KeyError,), noted.append)
    assert ask.asked == 1
    assert noted == []


class Clock(threading.Event):
    """A clock that only waiting moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += timeout or 0.0
        return False


def test_retries_end_after_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, clock = Failing(10**6, KeyError("never")), Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    with pytest.raises(KeyError, match="never"):
        retry_with_backoff(ask, 0.3, (KeyError,), cancelled=clock)
    assert ask.asked == 5  # after 0, 20, 60, 140 and 300 ms
    assert clock.now_s == pytest.approx(0.3)


def test_another_error_is_raised_at_once() -> None:
    ask = Failing(1, ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry_with_backoff(ask, RETRY_FOR_S, (KeyError,))
    assert ask.asked == 1


def test_a_cancelled_call_is_not_retried() -> None:
    """Neither after its first failure, nor once it is cancelled while it waits."""
    over = threading.Event()

    def ask() -> None:
        asked.append(None)
        if len(asked) == 3:
            over.set()
        raise KeyError("soon")

    for before, times in ((False, 3), (True, 1)):
        asked: list[None] = []
        (over.set if before else over.clear)()
        with pytest.raises(KeyError, match="soon"):
            retry_with_backoff(ask, 86_400.0, (KeyError,), cancelled=over)
        assert len(asked) == times
