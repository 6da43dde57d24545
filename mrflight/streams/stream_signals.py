"""Signals of a process that runs a stream: the first one asks it to stop after a commit."""

from __future__ import annotations

import queue
import signal
from contextlib import suppress
from types import FrameType

from mrflight.system.signals import SignalInterrupts


class StopRequest:
    """An event that a signal handler may set while the same thread waits for it.

    A `threading.Event` may not: its lock is the thread's own in some moments of a wait, and the
    handler would wait for it forever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()  # a handler may put to it

    def set(self) -> None:
        """Ask to stop, and wake the thread that waits, of which there is one at most."""
        self._is_set = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """Return whether somebody has asked to stop."""
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds, or until somebody asks to stop, and return whether that is so."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._wakes.get(timeout=timeout)
        return self._is_set


class StreamInterrupts(SignalInterrupts):
    """Lets the batch that runs be committed when a signal comes, for some time.

    After ``stop_within_s``, or with a second signal, the stream is interrupted like a job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stopping = StopRequest()
        """Set once the stream is to stop."""
        self.stop_within_s = 30.0

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._is_decided or self.stopping.is_set():
            super()._handle(signum, frame)
            return
        self.stopping.set()
        signal.setitimer(signal.ITIMER_REAL, max(0.1, self.stop_within_s), 0.1)

    def _raise_again(self, signum: int, frame: FrameType | None) -> None:
        if not self.was_interrupted:
            self._record()
        super()._raise_again(signum, frame)
