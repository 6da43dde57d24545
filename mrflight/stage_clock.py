"""How long a job has taken, and what of it each stage."""

from __future__ import annotations

import time
from collections import defaultdict

from mrflight.result import StageSeconds


class StageClock:
    """Wall time, stage by stage; of one that is run again the times add up."""

    def __init__(self, started: float) -> None:
        """``started`` is on the monotonic clock."""
        self._started = self._lap = started
        self._laps: defaultdict[str, float] = defaultdict(float)

    def lap(self, stage: str) -> None:
        """All since the last lap was ``stage``."""
        now = time.monotonic()
        self._laps[stage] += now - self._lap
        self._lap = now

    def seconds(self) -> StageSeconds:
        laps = {stage: round(seconds, 4) for stage, seconds in self._laps.items()}
        return StageSeconds(total=round(time.monotonic() - self._started, 4), **laps)
