"""A disk behind a page cache, for files of the test's own process: what was not synced is lost.

As on Linux, a sync that has failed leaves the bytes in the cache, where they are read as before,
and marks them as written, so that no later sync writes them. The name of a file is on the disk once
its folder is synced, and so is that it was removed.
"""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

_SECTOR_BYTES = 512


class ForgetfulDisk:
    """Knows which bytes of each file were synced; see `cut_power`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.fails_next = False
        """Whether the next sync fails."""
        self.at: Callable[[str], None] = lambda call: None
        """Is called before each write and sync, whose fault it may raise, and after each sync."""
        self._disk: dict[str, bytearray] = defaultdict(bytearray)
        self._unsynced: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._names: dict[str, set[str]] = {}
        self._write, self._sync = os.pwritev, os.fsync
        patch.setattr(os, "pwritev", self._pwritev)
        patch.setattr(os, "fdatasync", self._fdatasync)
        patch.setattr(os, "fsync", self._fsync)

    def cut_power(self, chosen: random.Random | None = None) -> None:
        """Leave in each file what was synced, and each file whose name was.

        With ``chosen`` some sectors of what was not synced are there as well, and only some of the
        removed files have come back, those that were removed last.
        """
        named = [name for name in sorted(self._disk) if self._is_named(name)]
        removed = [name for name in named if not os.path.exists(name)]
        if chosen is not None:
            self._write_back(chosen)
            removed = removed[: chosen.randrange(len(removed) + 1)]
            named = [name for name in named if name not in removed]
        for name in self._disk:
            Path(name).unlink(missing_ok=True)
        self._disk = defaultdict(bytearray, {name: self._disk[name] for name in named})
        for name, content in self._disk.items():
            Path(name).write_bytes(content)
        self._unsynced.clear()

    def _write_back(self, chosen: random.Random) -> None:
        for name, ranges in self._unsynced.items():
            if not os.path.exists(name):
                continue
            content, share = Path(name).read_bytes(), chosen.choice((0, 0.5, 1))
            for start, stop in ranges:
                for at in range(start, min(stop, len(content)), _SECTOR_BYTES):
                    if chosen.random() < share:
                        piece = content[at : min(stop, at + _SECTOR_BYTES)]
                        self._put(name, at, piece)

    def _put(self, name: str, at: int, piece: bytes) -> None:
        disk = self._disk[name]
        disk.extend(bytes(max(0, at - len(disk))))
        disk[at : at + len(piece)] = piece

    def _is_named(self, name: str) -> bool:
        """Whether the folder has the name on the disk; its own name too, if others' were synced."""
        folder, _, own = name.rpartition("/")
        if own not in self._names.get(folder, ()):
            return False
        return folder.rpartition("/")[0] not in self._names or self._is_named(folder)

    def _pwritev(self, file: int, parts: Sequence[memoryview], offset: int) -> int:
        name = _name(file)
        self._disk[name] += b""  # it has nothing yet
        self.at("write")
        written = self._write(file, parts[:1], offset)  # so that a fault may come within a group
        self._unsynced[name].append((offset, offset + written))
        return written

    def _fdatasync(self, file: int) -> None:
        name, size = _name(file), os.fstat(file).st_size
        try:
            self.at("sync")
            if self.fails_next:
                self.fails_next = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        except OSError:
            self._unsynced.pop(name, None)
            raise
        disk = self._disk[name]
        del disk[size:]
        disk.extend(bytes(size - len(disk)))
        for start, stop in self._unsynced.pop(name, []):
            stop = min(stop, size)
            disk[start:stop] = os.pread(file, max(0, stop - start), start)
        self.at("synced")

    def _fsync(self, file: int) -> None:
        name = _name(file)
        if not os.path.isdir(name):
            self._sync(file)
            return
        self.at("sync")
        self._names[name] = set(os.listdir(name))
        self.at("synced")


def _name(file: int) -> str:
    return os.readlink(f"/proc/self/fd/{file}")
