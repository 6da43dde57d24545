"""Gives what workers print to the progress report, line by line."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from mrflight.system.closeable import Closeable

_READ_BYTES = 2**16
_MAX_LINE_BYTES = 2**16
"""A longer line is shown in pieces."""

_LAST_READS = 16
"""How often a pipe is read once its worker has ended. Fewer reads empty it, but a process that the
worker has started may go on writing."""


class WorkerOutput(Closeable):
    """Reads a pipe of each worker in a thread, so that lines of different workers never mix."""

    def __init__(self, show: Callable[[str], None]) -> None:
        """``show`` is called with each line, from the thread."""
        self._show = show
        self._opened: SimpleQueue[int] = SimpleQueue()
        self._is_closing = False
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._read_all, name="output", daemon=True)
        self._thread.start()

    def open(self) -> int:
        """Return the end of a new pipe that a worker writes to; the caller closes its copy."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self._opened.put(reading)
        os.write(self._wake, b"+")
        return writing

    def close(self) -> None:
        """Show what is left of the workers, which have ended. May be called twice."""
        if not self._is_closing:
            self._is_closing = True
            os.write(self._wake, b"-")
            self._thread.join()
            os.close(self._wake)

    def _read_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._is_closing:
                for key, _ in selector.select():
                    if key.fd == self._woken:
                        os.read(self._woken, _READ_BYTES)
                        self._register_opened(selector)
                    elif not self._read(key.fd, key.data):
                        selector.unregister(key.fd)
                        os.close(key.fd)
            self._register_opened(selector)
            selector.unregister(self._woken)
            os.close(self._woken)
            for key in list(selector.get_map().values()):
                self._read_rest(key.fd, key.data)
                os.close(key.fd)

    def _register_opened(self, selector: selectors.BaseSelector) -> None:
        while not self._opened.empty():
            selector.register(self._opened.get(), selectors.EVENT_READ, _PartialLine())

    def _read(self, pipe: int, partial: _PartialLine) -> bool:
        """Show the lines that are there; return False if there is nothing more to come."""
        data = os.read(pipe, _READ_BYTES)
        for line in partial.add(data) if data else partial.rest():
            self._show(line)
        return bool(data)

    def _read_rest(self, pipe: int, partial: _PartialLine) -> None:
        for _ in range(_LAST_READS):
            try:
                if not self._read(pipe, partial):
                    return
            except BlockingIOError:  # a process that the worker has started still lives
                break
        for line in partial.rest():
            self._show(line)


class _PartialLine:
    """The beginning of a line whose end has not been read yet."""

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> Iterator[str]:
        """Return the lines that are whole now."""
        *lines, self._data = (self._data + data).split(b"\n")
        if len(self._data) > _MAX_LINE_BYTES:
            lines.append(self._data)
            self._data = b""
        return map(_text, lines)

    def rest(self) -> Iterator[str]:
        """Return what is there as a line."""
        left, self._data = self._data, b""
        return map(_text, [left] if left else [])


def _text(line: bytes) -> str:
    """Return what a terminal shows of a line that was written over itself, as by tqdm."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
