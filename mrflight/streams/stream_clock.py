"""The time of a stream, and whether it is to stop."""

from __future__ import annotations

import threading
import time

from mrflight.streams.stream_signals import StopRequest


class StreamClock:
    """Waits, unless the stream is to stop."""

    def __init__(self, stopping: threading.Event | StopRequest) -> None:
        """``stopping`` is set when the stream is to stop after the batch that runs."""
        self._stopping = stopping

    @property
    def is_stopping(self) -> bool:
        """True once the stream is to stop."""
        return self._stopping.is_set()

    def now(self) -> float:
        """Return the time in seconds, of which only differences count."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the stream is to stop, and return whether it is."""
        return self._stopping.wait(seconds)
