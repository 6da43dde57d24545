"""The times of a job's stages make up its total."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mrflight.result import StageSeconds
from mrflight.scheduler.metrics import PhaseTimer


@dataclass
class Time:
    """The monotonic clock, as the test has it."""

    now_s: float = 100.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("mrflight.scheduler.metrics.time.monotonic", lambda: time.now_s)
    return time


def test_a_stage_that_is_run_again_has_taken_both_times(time: Time) -> None:
    clock = PhaseTimer(time.now_s)
    time.now_s += 1
    for stage, took_s in [("map", 10), ("map", 7), ("reduce", 3), ("commit", 0.5)]:
        clock.begin(stage)
        time.now_s += took_s
    clock.stop()
    time.now_s += 0.25
    seconds = clock.seconds()
    assert (seconds.start, seconds.map, seconds.reduce, seconds.commit) == (1, 17, 3, 0.5)
    assert seconds.total == 21.75


def test_a_stage_that_is_under_way_counts(time: Time) -> None:
    clock = PhaseTimer(time.now_s)
    time.now_s += 1
    assert clock.seconds() == StageSeconds(total=1, start=1)
    clock.begin("map")
    time.now_s += 2
    assert clock.seconds() == StageSeconds(total=3, start=1, map=2)
