"""What holds the lock of an SQLite file, for the message about a catalog that is locked.

A process that was stopped, or hangs, in the middle of a transaction keeps its locks, and nobody
else can commit until it goes on or ends.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from mrflight.system.process_info import is_stopped

_LOCKS = Path("/proc/locks")

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_locked(error: BaseException | None) -> bool:
    """Return whether an error says that others kept a file locked for longer than SQLite waits."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.OperationalError) and code is not None and code & 0xFF in _BUSY


def describe_holder(path: str, locks: Path = _LOCKS) -> str:
    """Return who holds the lock of a file, and what to do about that."""
    pid = lock_holder(path, locks)
    if pid is None:
        return "another process holds its lock; end that, or try again once it has"
    if is_stopped(pid):
        return (
            f"process {pid} holds its lock, and is stopped; let it go on (kill -CONT {pid}), or "
            "end it"
        )
    return f"process {pid} holds its lock; end it, or try again once it has ended"


def lock_holder(path: str, locks: Path = _LOCKS) -> int | None:
    """Return the other process that has locked a file to write, or else to read; None if unknown.

    The file is not opened to ask for its locks, as closing it would release those of this process.
    Only Linux lists them.
    """
    with suppress(OSError, ValueError):
        status = os.stat(path)
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        found: dict[str, int] = {}
        for line in locks.read_text().splitlines():
            words = line.split()  # "1: POSIX ADVISORY WRITE 4711 fe:00:1024 1073741825 1073741825"
            if words[1] == "POSIX" and words[5] == device and int(words[4]) != os.getpid():
                found.setdefault(words[3], int(words[4]))
        return found.get("WRITE", found.get("READ"))
    return None
