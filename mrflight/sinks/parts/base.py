"""What a part writer is, and the part file that it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import msgspec
import pyarrow as pa

from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.key_bounds import KeyBounds
from mrflight.system.shared_payload import SharedPayload


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a reduce attempt wrote."""

    path: str
    """Relative to the table's folder, as it is on the disk (a Delta log encodes it)."""
    rows: int
    size_bytes: int
    partition_values: dict[str, str | None] = {}
    """As Delta serialises them; None is null."""
    stats: str = "{}"
    """Delta's file statistics, JSON: numRecords, minValues, maxValues, nullCount."""
    schema: pa.Schema
    """That its rows are stored with, the ``partition_by`` columns as well."""
    keys: KeyBounds | None = None
    """Of a merge: between what its keys lie."""
    is_key_file: bool = False
    """Whether it only says, to a merge, which keys are to go: no commit names it."""


class PartWriter(SharedPayload, ABC):
    """Writes one reduce attempt's rows as part files; picklable."""

    @abstractmethod
    def write(
        self,
        partition: int,
        attempt: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        share: int | None = None,
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        """Write ``batches`` to files ``part-<partition>[.<share>]-<attempt>-<job id>``.

        One for each value of the ``partition_by`` columns; more where there are too many values
        to have all their files open. No rows, no file. ``batches`` is consumed as it is written,
        never gathered; the columns of each are found by name. With ``closer`` the files are
        there once those have ended, which may raise JobFailedError.

        Raises OutputError if ``schema`` does not fit the table, before anything is written, or if
        a value cannot be stored; SchemaMismatchError where columns of ``batches`` are stored with
        other types than those of ``schema``; JobFailedError where the store fails. Removes
        what it wrote if it, or ``batches``, fails.
        """

    @property
    @abstractmethod
    def max_closing_files(self) -> int:
        """How many files are closed at a time beside what is written; 0: closing takes no time."""

    @abstractmethod
    def with_memory_limit(self, memory_bytes: int) -> PartWriter:
        """The same, of whose rows at most about ``memory_bytes`` wait to be encoded."""
