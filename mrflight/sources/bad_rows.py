"""What becomes of the rows of an input that cannot be read, if they do not fail the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from mrflight.storage import Location


class BadRowPolicy(msgspec.Struct, frozen=True):
    """What maps do with the bad rows of an input."""

    input: str
    """The name of the input, after that of its stage: ``visits`` or ``joined.visits``."""
    folder: Location | None = None
    """Where they are written; None if they are not."""
    keeps_rows: bool = False
    """True if they are returned to the driver, as those of a stream are."""


class BadRow(msgspec.Struct, frozen=True):
    """A row that cannot be read."""

    file: str
    line: int
    """The number, from 1, of the line on which it begins."""
    reason: str
    text: str
    """What the file has, without the line end. Bytes that are no text are escaped."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes it takes in memory."""
        return 200 + len(self.reason) + len(self.text)


class BadRowLog:
    """Counts the rows that an attempt of a map skips."""

    needs_rows = False
    """True if the rows themselves are used, so that their lines have to be counted."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        """Count some rows, which ``describe`` returns."""
        self.rows += count
