"""Signals of a process that runs a stream: the first one asks it to stop after a commit."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from mrflight.system.signals import SignalInterrupts


class StreamInterrupts(SignalInterrupts):
    """Lets the batch that runs be committed when a signal comes, for some time.

    After ``stop_within_s``, or with a second signal, the stream is interrupted like a job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stopping = threading.Event()
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
