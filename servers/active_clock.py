"""A clock that stands still while its process does."""

from __future__ import annotations

import threading
import time

_TICK_S = 0.25
_MOST_S = 1.0
"""That a tick may be late on a busy machine."""


class ActiveClock:
    """Seconds that this process has run, more or less; starts with the first call.

    A metadata server that was stopped for a minute has not listened for a minute: that nobody was
    heard of says nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._last = time.monotonic()
        self._ticks = threading.Thread(target=self._tick, name="clock", daemon=True)

    def __call__(self) -> float:
        with self._lock:
            if not self._ticks.is_alive():
                self._ticks.start()
            now = time.monotonic()
            self._seconds += min(now - self._last, _MOST_S)
            self._last = now
            return self._seconds

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK_S)
            self()
