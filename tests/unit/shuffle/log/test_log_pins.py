"""Pins keep rows of a log from being trimmed for a while."""

from __future__ import annotations

import pytest

from mrflight.ids import ShuffleKey
from mrflight.shuffle.log import log_pins
from mrflight.shuffle.log.log_pins import MAX_PIN_S, LogPins

A, B = ShuffleKey("a", "1"), ShuffleKey("b", "1")


def test_the_first_pinned_row_is_kept_until_its_time_is_over() -> None:
    times = [0.0]
    pins = LogPins(lambda: times[0])
    assert pins.floor(A, 100) == 100
    pins.add(A, 50, 10.0)
    pins.add(A, 70, 30.0)
    pins.add(A, 60, 5.0)  # another one keeps as much, and longer
    pins.add(A, 80, 10 * MAX_PIN_S)
    for now, first in ((0.0, 50), (9.0, 50), (11.0, 70), (31.0, 80), (MAX_PIN_S + 1, 100)):
        times[0] = now
        assert pins.floor(A, 100) == first, now
    assert pins.floor(B, 100) == 100, "another log"


def test_very_many_pins_become_one_that_keeps_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pins, "MAX_PINS", 3)
    times = [0.0]
    pins = LogPins(lambda: times[0])
    for offset in range(50, 54):
        pins.add(A, offset, float(offset))
    assert pins._pins[A] == [(53.0, 50)]
    times[0] = 52.0
    assert pins.floor(A, 100) == 50
    times[0] = 54.0
    assert pins.floor(A, 100) == 100


def test_a_log_that_was_dropped_has_no_pins() -> None:
    pins = LogPins()
    pins.add(A, 0, 60.0)
    assert pins.floor(A, 5) == 0
    pins.forget(A)
    assert pins.floor(A, 5) == 5
