"""What a signal is called."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """As ``SIGKILL``, or ``signal 35`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between the first and the last
        return f"signal {number}"
