"""The interface of rows that are in a Python program, and that an input reads instead of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrflight.errors import JobFileError
from mrflight.units import format_bytes, format_count

if TYPE_CHECKING:
    import pyarrow as pa


class InputFrame(ABC):
    """Rows in the process that made the dataset: a table, a query, or a stream.

    A copy that was unpickled in another process describes them, and does not have them.
    """

    reads_once = False
    """True if the rows can be taken only once."""

    def __init__(
        self, kind: str, schema: pa.Schema, rows: int | None = None, size_bytes: int = 0
    ) -> None:
        """Describe rows, whose number and size are not known before a stream has been read."""
        self.kind = kind
        """The type of the user's object, for messages."""
        self.schema = schema
        self.rows = rows
        self.size_bytes = size_bytes

    @abstractmethod
    def look(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows from the first one on, and leave all of them for a job."""

    @abstractmethod
    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, for a job; those of a stream cannot be taken again."""

    @property
    def is_taken(self) -> bool:
        """True if a job has taken the rows, and no other can."""
        return False

    @property
    def identity(self) -> object:
        """An object that frames of the same rows share."""
        return self

    def __str__(self) -> str:
        known = [] if self.rows is None else [format_count(self.rows, "row")]
        size = [] if self.rows is None else [format_bytes(self.size_bytes)]
        return ", ".join([self.kind, *known, *size])

    def __repr__(self) -> str:
        return f"<{self}>"

    def __reduce__(self) -> tuple[type[InputFrame], tuple[object, ...]]:
        return _FrameElsewhere, (self.kind, self.schema, self.rows, self.size_bytes)


class _FrameElsewhere(InputFrame):
    """Describes rows of another process."""

    def look(self) -> Iterator[pa.RecordBatch]:
        raise JobFileError(
            f"the rows of this {self.kind} are in the process that made the dataset; run the job "
            "there, or write them to a file that the job reads"
        )

    def take(self) -> Iterator[pa.RecordBatch]:
        return self.look()
