"""The limit of how often a process is started again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MAX_RESTARTS = 8
"""What ended so many processes within `WITHIN_S` would end the next one, too."""

WITHIN_S = 3600.0
"""Restarts of longer ago do not count: a stream runs for months, and loses a process now and
then."""


class RestartLimit:
    """Counts the restarts of one kind of process within the last hour."""

    def __init__(
        self, limit: int = MAX_RESTARTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock`` returns seconds."""
        self._limit, self._clock = limit, clock
        self._times: deque[float] = deque(maxlen=limit)

    @property
    def is_reached(self) -> bool:
        if len(self._times) < self._limit:
            return False
        return not self._times or self._clock() - self._times[0] < WITHIN_S

    def note_restart(self) -> None:
        """Count a restart that begins now."""
        self._times.append(self._clock())
