"""End a worker process with the process that started it, even if that one is killed.

Otherwise loky's workers would wait for work for minutes, or forever.
"""

from __future__ import annotations

import os
import select
import threading

_watched: set[int] = set()


def end_with(starter: int) -> None:
    """Exit this process when the process ``starter`` has ended, if the system can tell (Linux)."""
    if starter in _watched or not hasattr(os, "pidfd_open"):
        return
    _watched.add(starter)
    try:
        handle = os.pidfd_open(starter)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(target=_wait, args=(handle,), daemon=True).start()


def _wait(handle: int) -> None:
    select.select([handle], [], [])
    os._exit(1)
