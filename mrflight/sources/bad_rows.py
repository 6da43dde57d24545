"""What becomes of the rows of an input that cannot be read, if they do not fail the job."""

from __future__ import annotations

import msgspec


class BadRowPolicy(msgspec.Struct, frozen=True):
    """What maps do with the bad rows of an input."""

    input: str
    """The name of the input, after that of its stage: ``visits`` or ``joined.visits``."""


class BadRowLog:
    """Counts the rows that an attempt of a map skips."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, count: int) -> None:
        """Count rows of a chunk that were found bad."""
        self.rows += count
