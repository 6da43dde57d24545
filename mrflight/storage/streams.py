"""File objects for files that are not on a disk, with the methods that `pyarrow.PythonFile` calls.

It takes the mode as an argument, and finds the size by seeking to the end.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RangedFile:
    """A file for reading; each range is one request."""

    def __init__(self, size_bytes: int, read: Callable[[int, int], Any]) -> None:
        """``read`` returns the bytes between two offsets; it is not called for empty ranges."""
        self._size = size_bytes
        self._read = read
        self._at = 0
        self.closed = False

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, count: int | None = None) -> bytes:
        return bytes(self.read_buffer(count))

    def read_buffer(self, count: int | None = None) -> Any:
        """Read like `read`, without a copy if the store's client returns a buffer."""
        stop = self._size if count is None or count < 0 else min(self._at + count, self._size)
        if stop <= self._at:
            return b""
        start, self._at = self._at, stop  # before another thread can seek
        return self._read(start, stop)

    def close(self) -> None:
        self.closed = True


class WrittenFile:
    """A file that is written sequentially."""

    def __init__(self, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """``close`` makes the file visible, if the store does that at the end."""
        self._write = write
        self._close = close
        self._at = 0
        self.closed = False

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        written = bytes(data)  # the clients take nothing else
        self._write(written)
        self._at += len(written)
        return len(written)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._close()
