"""What a sink is: part files at their final names, then one commit.

The driver opens a `Sink`, which looks at what is there and refuses what
cannot work. Its `part_writer`, small and picklable, travels to the reduce
tasks; the `PartFile`s they return are all that the commit needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a reduce attempt wrote."""

    path: str
    """Relative to the table's folder, URL-encoded as a Delta log wants it."""
    rows: int
    size_bytes: int
    partition_values: dict[str, str | None] = {}
    """As Delta serialises them; None is null."""
    stats: str = "{}"
    """Delta's file statistics, JSON: numRecords, minValues, maxValues, nullCount."""


@dataclass(frozen=True)
class Commit:
    """What the winning reduce attempts made, ready to be committed."""

    parts: tuple[PartFile, ...]
    schema: pa.Schema
    """Of the result, also where there are no parts."""


class PartWriter(ABC):
    """Writes one reduce attempt's rows as part files; picklable."""

    @abstractmethod
    def write(
        self, partition: int, attempt: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> list[PartFile]:
        """Write ``batches`` to ``part-<partition>-<attempt>-<job id>``, one file per partition value.

        No rows, no file. ``batches`` is consumed as it is written, never gathered.
        Raises OutputError if ``schema`` does not fit the table, before anything is written;
        removes what it wrote if it, or ``batches``, fails.
        """


class Sink(ABC):
    """An output that was looked at and found possible."""

    @property
    @abstractmethod
    def part_writer(self) -> PartWriter: ...

    @abstractmethod
    def committed_version(self) -> int | None:
        """The version that an earlier run of the same ``run_id`` committed, or None."""

    @abstractmethod
    def commit(self, commit: Commit) -> int | None:
        """Make the parts visible in one step; the table's new version, None for plain folders.

        Raises OutputError where the table changed so that it does not take them, CommitError
        where the store fails.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove every part file of this job, and folders that it made, and nothing else."""
