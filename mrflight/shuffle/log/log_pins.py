"""What readers keep of an event log: rows that are not trimmed for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mrflight.ids import ShuffleKey

MAX_PIN_S = 3600.0
MAX_PINS = 1024
"""The pins of one log. More become one, which keeps what all of them keep."""


class LogPins:
    """The pins of the logs on a data server, in memory. Safe for many threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pins: dict[ShuffleKey, list[tuple[float, int]]] = {}
        """Until when, and from which offset on; each later pin begins further on."""

    def add(self, key: ShuffleKey, offset: int, for_s: float) -> None:
        """Keep the rows from an offset on for a time, `MAX_PIN_S` at most."""
        until = self._clock() + min(for_s, MAX_PIN_S)
        with self._lock:
            pins = self._live(key)
            if any(ends >= until and first <= offset for ends, first in pins):
                return
            kept = [(ends, first) for ends, first in pins if ends > until or first < offset]
            pins = [*kept, (until, offset)]
            if len(pins) > MAX_PINS:
                pins = [(max(ends for ends, _ in pins), min(first for _, first in pins))]
            self._pins[key] = pins

    def floor(self, key: ShuffleKey, offset: int) -> int:
        """Return up to where a log may be trimmed if it is to be trimmed up to an offset."""
        with self._lock:
            return min([offset, *(first for _, first in self._live(key))])

    def forget(self, key: ShuffleKey) -> None:
        """Forget the pins of a log that was dropped."""
        with self._lock:
            self._pins.pop(key, None)

    def _live(self, key: ShuffleKey) -> list[tuple[float, int]]:
        now = self._clock()
        pins = [pin for pin in self._pins.get(key, ()) if pin[0] > now]
        if pins:
            self._pins[key] = pins
        else:
            self._pins.pop(key, None)
        return pins
