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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._clock = clock
        self._times: deque[float] = deque(maxlen=MAX_RESTARTS)

    @property
    def is_reached(self) -> bool:
        """True if the process was started again `MAX_RESTARTS` times within `WITHIN_S`."""
        is_full = len(self._times) == MAX_RESTARTS
        return is_full and self._clock() - self._times[0] < WITHIN_S

    def note_restart(self) -> None:
        """Count a restart that begins now."""
        self._times.append(self._clock())
