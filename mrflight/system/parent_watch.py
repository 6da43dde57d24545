"""Processes that end with the one that started them, however that one ends.

The starter holds a lock on a file for as long as it lives; the kernel lets go
of it when the process is gone, killed or not. A child waits for that lock in
a thread, and getting it means that the starter is dead. The record locks used
here belong to a process, so a fork of the starter does not keep them alive.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from mrflight.system.closeable import Closes


class Lifeline(Closes):
    """Held by the starter: its children live until it is closed, or the process is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        """Let go: every child that still holds on ends."""
        self._file.close()


def hold_on(path: Path) -> None:
    """Called by a child: exit as soon as the starter is gone."""
    file = path.open("r")

    def wait() -> None:
        fcntl.lockf(file, fcntl.LOCK_SH)
        os._exit(1)  # from a thread, and without waiting for anybody

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
