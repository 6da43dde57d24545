"""The medians of the tasks of stages, computed seldom: each has to sort the times of all tasks."""

from __future__ import annotations

from mrflight.events.stage_view import StageView

_FEW = 2_000
_GROWN = 3
"""Sorting the times of 100,000 tasks takes 25 ms, so all of it takes 40 ms in a job of so many."""


class Medians:
    """Medians by stage; one is computed again when there are half as many again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, float]] = {}

    def of(self, stage: StageView) -> float:
        """Return the median of a stage: exactly at its end, and nearly before that."""
        done = len(stage.durations)
        at, median = self._known.get(stage.stage, (0, 0.0))
        is_due = stage.ended_at is not None or done < _FEW or done > at * _GROWN
        if done != at and is_due:
            median = stage.durations.median()
            self._known[stage.stage] = done, median
        return median
