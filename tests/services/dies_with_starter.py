"""Run as a script: becomes a command that is killed when the process that started it is gone.

A script of its own, as ``preexec_fn`` may deadlock in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(starter: int, command: list[str]) -> None:
    with suppress(AttributeError):  # where it is not Linux, only a starter that closes kills it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != starter:  # it ended before there was anything to tell of that
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
