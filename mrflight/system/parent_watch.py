"""Ends processes when the process that started them ends, however it ends.

The parent holds a lock on a file for as long as it lives. The kernel releases the lock when the
process is gone, even if it was killed. A child waits for that lock in a thread; when it gets it,
the parent is dead. These record locks belong to a process, so a fork of the parent does not keep
them.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from mrflight.system.closeable import Closeable


class ParentWatch(Closeable):
    """The parent's side: its children live until this is closed, or the process is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        """Release the lock: every child that still watches it ends."""
        self._file.close()


def exit_with_parent(path: Path) -> None:
    """Make this process, a child, exit as soon as its parent is gone."""
    file = path.open("r")

    def wait() -> None:
        fcntl.lockf(file, fcntl.LOCK_SH)
        os._exit(1)  # ends the process from this thread, without waiting for others

    threading.Thread(target=wait, name="parent watch", daemon=True).start()
