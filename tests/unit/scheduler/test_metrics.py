"""The phase timer: the times of the phases add up to the total."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mrflight.result import StageSeconds
from mrflight.scheduler.metrics import PhaseTimer


@dataclass
class Time:
    """The monotonic clock of a test."""

    now_s: float = 100.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("mrflight.scheduler.metrics.time.monotonic", lambda: time.now_s)
    return time


def test_the_times_of_a_repeated_phase_add_up(time: Time) -> None:
    timer = PhaseTimer(time.now_s)
    time.now_s += 1
    for stage, took_s in [("map", 10), ("map", 7), ("reduce", 3), ("commit", 0.5)]:
        timer.begin(stage)
        time.now_s += took_s
    timer.stop()
    time.now_s += 0.25
    seconds = timer.seconds()
    assert (seconds.start, seconds.map, seconds.reduce, seconds.commit) == (1, 17, 3, 0.5)
    assert seconds.total == 21.75


def test_the_current_phase_counts(time: Time) -> None:
    timer = PhaseTimer(time.now_s)
    time.now_s += 1
    assert timer.seconds() == StageSeconds(total=1, start=1)
    timer.begin("map")
    time.now_s += 2
    assert timer.seconds() == StageSeconds(total=3, start=1, map=2)
