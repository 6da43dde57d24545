"""An interrupt of a command that is still loading: a tenth of a second, or several."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType

EXIT_INTERRUPTED = 130


def leave_when_interrupted() -> None:
    """End the process with 130 at a SIGINT, and without a word of where it was.

    For one that is the command's alone and has begun nothing yet; until somebody else handles
    SIGINT. Where it is ignored, as nohup or a shell's & has it, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def unwind_when_interrupted() -> None:
    """Raise KeyboardInterrupt at a SIGINT again: from now on there is something to put in order."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(signum: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(2, b"mrflight: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
