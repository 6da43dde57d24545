"""The medians of the tasks of stages, computed seldom: each has to sort the times of many tasks."""

from __future__ import annotations

from mrflight.events.stage_view import StageView

_FEW = 1_000
_GROWN = 1.5


class Medians:
    """Medians by stage; of many tasks one is computed again when there are half as many again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, bool, float]] = {}

    def of(self, stage: StageView) -> float:
        """Return the median of a stage: exactly at its end, and nearly before that."""
        done, is_over = len(stage.durations), stage.ended_at is not None
        at, was_over, median = self._known.get(stage.stage, (0, False, 0.0))
        if is_over and not (was_over and at == done):
            median = stage.durations.median()
        elif not is_over and done != at and (done < _FEW or done > at * _GROWN):
            median = stage.durations.nearly_median()
        else:
            return median
        self._known[stage.stage] = done, is_over, median
        return median
