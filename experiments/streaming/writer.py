"""What the measured program asks of a system: write rows, and read back what is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa


class Writer(ABC):
    """An open table of one system."""

    @abstractmethod
    def write(self, rows: pa.Table, written: Callable[[], None]) -> None:
        """Write rows, and call ``written`` once the system has answered for them."""

    def finish(self) -> None:
        """Wait until all that was written has been answered."""
        return

    def flush(self) -> bool:
        """Make files of what is in none; return whether the system has a flush."""
        return False

    def merge(self) -> bool:
        """Merge the small files; return whether that is measured."""
        return False

    @abstractmethod
    def ids(self) -> pa.ChunkedArray:
        """Return the numbers of all trips in the table."""

    def commits(self) -> list[float]:
        """Return the times of day at which the table was appended to."""
        return []

    @property
    def location(self) -> str:
        """Where its files are; empty for a log."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Close it."""
