"""A terminal that remembers what it is sent."""

from __future__ import annotations

import os
import pty
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

ENVIRONMENT = {"TERM": "xterm", "COLUMNS": "200"}
"""What a program finds in the environment there."""


class Terminal:
    """A terminal; ``descriptor`` is the side of the program, which the program closes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.received = bytearray()

    @property
    def shown(self) -> str:
        """The text without escape sequences, in the order in which it came."""
        return _ESCAPES.sub("", self.received.decode())


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Give a terminal; all that was written is there at the end of the block."""
    ours, theirs = pty.openpty()
    made = Terminal(theirs)

    def read() -> None:
        try:
            while data := os.read(ours, 4096):
                made.received.extend(data)
        except OSError:  # how Linux says that the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield made
    finally:
        reader.join()
        os.close(ours)
