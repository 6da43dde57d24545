"""What lets the events of a stream be read before they are committed."""

from __future__ import annotations

from abc import abstractmethod

from mrflight.streams.positions import Position
from mrflight.system.closeable import Closeable


class Live(Closeable):
    """Keeps the tail of a table while its stream runs. A context manager."""

    @abstractmethod
    def follow(self, position: Position) -> None:
        """Learn where the stream is; it is told again and again."""

    def cut(self, position: Position, ends: Position) -> Position:
        """Return where a batch is to end that would end at ``ends``, so that the tail can be cut.

        By default it can be cut everywhere.
        """
        return ends

    @abstractmethod
    def committed(self) -> None:
        """Learn that the table has a new version."""
