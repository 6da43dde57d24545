"""Wakes the main thread for signals that other threads of the process have taken."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType

WAKE = signal.SIGURG
"""Nobody sends it to a driver, and it does nothing to a process without a handler."""

_AGAIN_S = 0.05
_LOOKS = 2
"""Of the main thread: the first may have begun before there was anything to see."""


class SignalRelay:
    """For a process whose signals are its own; made in its main thread, at work until its end.

    Python runs handlers in the main thread, which has to be awake for that. The system may give a
    signal to any thread, though. Of two that come at once, as of a Ctrl-C and a SIGTERM, it gives
    the second to another thread than the main one, which has yet to take the first, and whoever is
    quicker takes both: the main thread sleeps on. So it does where a signal comes after it has
    looked for some, and before it sleeps. A thread sees to it that it looks again.
    """

    def __init__(self) -> None:
        self._taken, told = os.pipe()
        for end in (self._taken, told):
            os.set_blocking(end, False)
        self._main = threading.get_ident()
        self._looks = 0
        signal.signal(WAKE, self._look)
        # Written to by whichever thread takes a signal, and at once.
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        threading.Thread(target=self._relay, name="signal-relay", daemon=True).start()

    def _look(self, signum: int, frame: FrameType | None) -> None:
        self._looks += 1  # after the handlers of what has a smaller number, as interrupts have

    def _relay(self) -> None:
        while True:
            select.select([self._taken], [], [])
            if not set(os.read(self._taken, 4096)) - {WAKE}:
                continue
            enough = self._looks + _LOOKS
            while self._looks < enough:
                signal.pthread_kill(self._main, WAKE)
                select.select([], [], [], _AGAIN_S)
