"""Whether the system killed a process for want of memory, as far as its counter tells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int | None:
    """How many processes the system has killed for memory since it started, in whatever container.

    None where it does not say, as only Linux does.
    """
    with suppress(OSError, ValueError):
        for line in VMSTAT.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None
