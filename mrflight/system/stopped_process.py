"""Whether a process was stopped, by SIGSTOP or a terminal, as far as the system tells."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


class Standstill:
    """For how long a process has been stopped, as far as somebody has looked."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def lasts(self, pid: int | None, seconds: float) -> bool:
        """Whether it is stopped, and was found so this long ago. A process that is none is not."""
        if pid is None or not is_stopped(pid):
            self._since_s = None
            return False
        self._since_s = self._since_s or time.monotonic()
        return self.seconds() >= seconds

    def seconds(self) -> float:
        """Since it was first found stopped; 0 where it runs."""
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s


def is_stopped(pid: int) -> bool:
    """Whether a process stands still until somebody lets it go on. False where that is not known.

    One in the hands of a debugger is not meant.
    """
    return _state(pid) == "T"


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits to be asked for its exit code. True without /proc."""
    return _state(pid) in ("", "Z", "X")


def _state(pid: int) -> str:
    """As ``ps`` has it; empty where the process is gone, or there is no /proc."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0]
    return ""
