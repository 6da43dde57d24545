"""How long a job has taken, and what of it each stage."""

from __future__ import annotations

import time
from collections import defaultdict

from mrflight.result import StageSeconds


class PhaseTimer:
    """Wall time, stage by stage, from ``start`` on; of one that is run again the times add up."""

    def __init__(self, started: float) -> None:
        """``started`` is on the monotonic clock."""
        self.started = self._since = started
        self._stage: str | None = "start"
        self._ended: defaultdict[str, float] = defaultdict(float)

    def begin(self, stage: str) -> None:
        """The stage until now has ended."""
        self.stop()
        self._stage = stage

    def stop(self) -> None:
        """What comes now is of no stage; of the total it is."""
        now = time.monotonic()
        if self._stage is not None:
            self._ended[self._stage] += now - self._since
        self._stage, self._since = None, now

    def seconds(self) -> StageSeconds:
        """Until now, of the stage that is under way as well."""
        now = time.monotonic()
        stages = dict(self._ended)
        if self._stage is not None:
            stages[self._stage] = self._ended[self._stage] + now - self._since
        rounded = {stage: round(seconds, 4) for stage, seconds in stages.items()}
        return StageSeconds(total=round(now - self.started, 4), **rounded)
