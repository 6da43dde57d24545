"""Ends a command that is interrupted while it loads.

Loading takes a tenth of a second, or several. This module is apart from
`mrflight.system.signals` because a command imports it before anything else, and it therefore
imports almost nothing.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType

EXIT_INTERRUPTED = 130


def leave_when_interrupted() -> None:
    """End the process with exit code 130, and without a traceback, at a SIGINT.

    This is for a process that runs only this command and has started nothing yet. It holds until
    another handler for SIGINT is installed. If SIGINT is ignored, as nohup or a shell's & does, it
    stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def unwind_when_interrupted() -> None:
    """Raise KeyboardInterrupt at a SIGINT again, because there is now something to clean up."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(signum: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(2, b"mrflight: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
