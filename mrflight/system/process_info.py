"""What the operating system says about processes: their state, and how they were ended."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

VMSTAT = Path("/proc/vmstat")


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``, or ``signal 35`` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between the first and the last one
        return f"signal {number}"


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed since it started because memory ran out.

    The number counts all containers of the machine. It is None if the system does not tell, which
    only Linux does.
    """
    with suppress(OSError, ValueError):
        for line in VMSTAT.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


class StoppedTimer:
    """Measures how long a process has been stopped, by a SIGSTOP or a terminal.

    It knows only what it saw when it was asked.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None

    def reached(self, pid: int | None, seconds: float) -> bool:
        """Return whether a process is stopped, and has been for so long. Without a pid: False."""
        if pid is None or not is_stopped(pid):
            self._since_s = None
            return False
        self._since_s = self._since_s or time.monotonic()
        return self.seconds() >= seconds

    def seconds(self) -> float:
        """Return the time since the process was first seen stopped; 0 if it runs."""
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped until it receives SIGCONT. False if that is unknown.

    A process that a debugger has stopped does not count.
    """
    return _state(pid) == "T"


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or is a zombie. True without /proc."""
    return _state(pid) in ("", "Z", "X")


def _state(pid: int) -> str:
    """Return the state letter of ``ps``; empty if the process is gone, or without /proc."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0]
    return ""
