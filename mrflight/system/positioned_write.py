"""Writes several buffers to a file at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

_MAX_VECTORS = os.sysconf("SC_IOV_MAX")


def write_all(file: int, offset: int, parts: Sequence[memoryview]) -> None:
    """Write buffers of bytes one after the other from ``offset`` on; raises OSError."""
    parts = [part for part in parts if part.nbytes]
    first = 0
    while first < len(parts):
        written = os.pwritev(file, parts[first : first + _MAX_VECTORS], offset)
        if written == 0:
            raise OSError(errno.EIO, "nothing more is written")
        offset += written
        while first < len(parts) and written >= parts[first].nbytes:
            written -= parts[first].nbytes
            first += 1
        if written:
            parts[first] = parts[first][written:]
