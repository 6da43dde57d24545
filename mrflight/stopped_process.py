"""Whether a process was stopped, by SIGSTOP or a terminal, as far as the system tells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether a process stands still until somebody lets it go on. False where that is not known.

    One in the hands of a debugger is not meant.
    """
    with suppress(OSError):  # it has ended, or there is no /proc
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] == "T"
    return False
