"""Who is asked again: for what, for how long, and until nobody waits any more."""

from __future__ import annotations

import threading
import time

import pytest

from mrflight.system.retry import retry_with_backoff

PATIENCE_S = 30.0


class Failing:
    """Raises so often, and then answers."""

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


def test_it_is_asked_again_until_there_is_an_answer() -> None:
    ask, noted = Failing(3, KeyError("soon")), []
    assert retry_with_backoff(ask, PATIENCE_S, (KeyError,), noted.append) == "here"
    assert ask.asked == 4
    assert noted == [ask.error] * 3


def test_without_patience_it_is_asked_once_and_nothing_is_noted() -> None:
    ask, noted = Failing(1, KeyError("soon")), []
    with pytest.raises(KeyError, match="soon"):
        retry_with_backoff(ask, 0.0, (KeyError,), noted.append)
    assert ask.asked == 1
    assert noted == []


def test_patience_ends() -> None:
    ask, began = Failing(10**6, KeyError("never")), time.monotonic()
    with pytest.raises(KeyError, match="never"):
        retry_with_backoff(ask, 0.3, (KeyError,))
    assert time.monotonic() - began < PATIENCE_S
    assert ask.asked > 2


def test_another_error_is_raised_at_once() -> None:
    ask = Failing(1, ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry_with_backoff(ask, PATIENCE_S, (KeyError,))
    assert ask.asked == 1


def test_nobody_is_asked_again_once_it_is_over() -> None:
    over, began = threading.Event(), time.monotonic()
    ask = Failing(10**6, KeyError("soon"))
    timer = threading.Timer(0.2, over.set)
    timer.start()
    with pytest.raises(KeyError, match="soon"):
        retry_with_backoff(ask, 10 * PATIENCE_S, (KeyError,), cancelled=over)
    timer.join()
    assert time.monotonic() - began < PATIENCE_S
