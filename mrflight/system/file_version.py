"""Tells whether a file has changed since it was read."""

from __future__ import annotations

import os
from pathlib import Path

FileVersion = tuple[int, ...]


def file_version(path: str | Path) -> FileVersion:
    """Return what changes when a file is replaced, written to or given another mode.

    It is empty if there is no such file.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_ino, found.st_ctime_ns, found.st_size)
