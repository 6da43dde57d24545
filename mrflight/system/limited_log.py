"""Warnings that whoever reaches a port can cause: one in a while, and how many there were."""

from __future__ import annotations

import logging
import threading

EVERY_S = 10.0


class LimitedWarnings:
    """Logs a warning, and for a while after it only counts. Safe for many threads."""

    def __init__(self, log: logging.Logger, every_s: float = EVERY_S) -> None:
        self._log = log
        self._every_s = every_s
        self._lock = threading.Lock()
        self._counting: threading.Timer | None = None
        self._counted = 0

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, or count it."""
        with self._lock:
            if self._counting is not None:
                self._counted += 1
                return
            self._begin()
        self._log.warning(message, *values)

    def _begin(self) -> None:
        self._counted = 0
        self._counting = threading.Timer(self._every_s, self.tell)
        self._counting.daemon = True
        self._counting.start()

    def tell(self) -> None:
        """Log how many were counted, and go on counting if there were any."""
        with self._lock:
            if self._counting is None:
                return
            self._counting.cancel()
            counted, self._counting = self._counted, None
            if counted:
                self._begin()
        if counted:
            self._log.warning("%d more like this in the last %g s", counted, self._every_s)
