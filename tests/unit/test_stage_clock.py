"""The times of a job's stages make up its total."""

from __future__ import annotations

import pytest

from mrflight.stage_clock import StageClock


def test_a_stage_that_is_run_again_has_taken_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("mrflight.stage_clock.time.monotonic", lambda: now_s)
    clock = StageClock(100.0)
    for stage, seconds in [("start", 1), ("map", 10), ("map", 7), ("reduce", 3), ("commit", 0.5)]:
        now_s += seconds
        clock.lap(stage)
    seconds = clock.seconds()
    assert (seconds.start, seconds.map, seconds.reduce, seconds.commit) == (1, 17, 3, 0.5)
    assert seconds.total == 21.5
