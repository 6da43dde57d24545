"""A clock that stops while its process is suspended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_TICK_S = 0.25
_MAX_TICK_S = 1.0
"""A tick may be this late on a busy machine."""


class ActiveClock:
    """Returns roughly the seconds that this process has run since the first call.

    A metadata server that was suspended for a minute has received no heartbeats for a minute, which
    says nothing about its data servers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` goes on while this process is suspended."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._last = clock()
        self._ticks = threading.Thread(target=self._tick, name="clock", daemon=True)

    def __call__(self) -> float:
        with self._lock:
            if not self._ticks.is_alive():
                self._ticks.start()
            now = self._clock()
            self._seconds += min(now - self._last, _MAX_TICK_S)
            self._last = now
            return self._seconds

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK_S)
            self()
