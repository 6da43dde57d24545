"""The interface of part writers, and the part file that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import msgspec
import pyarrow as pa

from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.key_bounds import KeyBounds
from mrflight.storage.part_name import PartId
from mrflight.system.shared_payload import SharedPayload


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a reduce attempt wrote."""

    path: str
    """Relative to the table's folder, as it is on the disk (a Delta log percent-encodes it)."""
    rows: int
    size_bytes: int
    partition_values: dict[str, str | None] = {}
    """The texts of the values as Delta serialises them; None for null."""
    stats: str = "{}"
    """Delta's file statistics as JSON: numRecords, minValues, maxValues, nullCount."""
    schema: pa.Schema
    """The schema of its rows, including the ``partition_by`` columns."""
    keys: KeyBounds | None = None
    """The bounds of its keys, if a merge wrote it."""
    is_key_file: bool = False
    """True if the file only lists the keys that a merge deletes. No commit names such a file."""


class PartWriter(SharedPayload, ABC):
    """Writes the rows of one reduce attempt as part files. Picklable."""

    @abstractmethod
    def write(
        self,
        part: PartId,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        """Write ``batches`` to files whose names `part_name` makes of ``part``.

        There is one file for each value of the ``partition_by`` columns, and more if there are
        too many values to have all of their files open. Without rows there is no file. ``batches``
        is consumed as it is written and never gathered; its columns are found by name. With
        ``closer`` the files are there once that has ended, which may raise JobFailedError.

        Raises OutputError if ``schema`` does not fit the table, before anything is written, or if
        a value cannot be stored. Raises SchemaMismatchError if columns of ``batches`` are stored
        with other types than those of ``schema``, and JobFailedError if the store fails. Removes
        what it wrote if it fails, or if ``batches`` does.
        """

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Raise JobError if rows of ``schema`` cannot be written, whatever their values."""

    @property
    @abstractmethod
    def max_closing_files(self) -> int:
        """The number of files that are closed in the background; 0 if closing takes no time."""

    @abstractmethod
    def with_memory_limit(self, memory_bytes: int) -> PartWriter:
        """Return a writer that buffers at most about ``memory_bytes`` of rows to be encoded."""
