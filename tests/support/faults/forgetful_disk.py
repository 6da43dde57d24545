"""A disk behind a page cache, for files of the test's own process: what was not synced is lost.

As on Linux, a sync that has failed leaves the bytes in the cache, where they are read as before,
and marks them as written, so that no later sync writes them.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest


class ForgetfulDisk:
    """Knows which bytes of each file were synced; see `cut_power`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.fails_next = False
        """Whether the next sync fails."""
        self._disk: dict[str, bytearray] = defaultdict(bytearray)
        self._unsynced: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._write, self._sync = os.pwritev, os.fdatasync
        patch.setattr(os, "pwritev", self._pwritev)
        patch.setattr(os, "fdatasync", self._fdatasync)

    def cut_power(self) -> None:
        """Leave in each file what was synced."""
        for name, content in self._disk.items():
            Path(name).write_bytes(content)

    def _pwritev(self, file: int, parts: Sequence[memoryview], offset: int) -> int:
        written = self._write(file, parts, offset)
        name = _name(file)
        self._unsynced[name].append((offset, offset + written))
        self._disk[name] += b""  # it has nothing yet
        return written

    def _fdatasync(self, file: int) -> None:
        name, size = _name(file), os.fstat(file).st_size
        unsynced = self._unsynced.pop(name, [])
        if self.fails_next:
            self.fails_next = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(file)
        disk = self._disk[name]
        disk[:] = disk[:size].ljust(size, b"\0")
        for start, stop in unsynced:
            stop = min(stop, size)
            disk[start:stop] = os.pread(file, max(0, stop - start), start)


def _name(file: int) -> str:
    return os.readlink(f"/proc/self/fd/{file}")
