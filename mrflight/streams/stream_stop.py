"""How a stream is stopped in a process that is not its alone: no signal is handled."""

from __future__ import annotations

import threading

from mrflight.system.signals import Interrupts


class StreamStop(Interrupts):
    """Lets the batch that runs be committed once an event is set."""

    def __init__(self, stopping: threading.Event) -> None:
        super().__init__()
        self.stopping = stopping
        """Set once the stream is to stop."""
        self.stop_within_s = 0.0
        """Not used: whoever sets the event decides how long to wait."""
