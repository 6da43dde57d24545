"""Plans a compaction: which data files of an Iceberg snapshot become one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.sinks.parts.file_runs import file_runs

if TYPE_CHECKING:
    from pyiceberg.table import Table


class ScannedFile(msgspec.Struct, frozen=True):
    """A data file of a snapshot, with the delete files that apply to it."""

    task: Any
    """pyiceberg's `FileScanTask`."""

    @property
    def size_bytes(self) -> int:
        return int(self.task.file.file_size_in_bytes)

    @property
    def has_deletes(self) -> bool:
        """Whether rows of it may be deleted."""
        return bool(self.task.delete_files)

    @property
    def state(self) -> tuple[str, frozenset[str]]:
        """What decides its rows: its path, and those of its delete files."""
        deletes = frozenset(each.file_path for each in self.task.delete_files)
        return self.task.file.file_path, deletes


class Bin(msgspec.Struct, frozen=True):
    """Files of one partition, in the order that their rows will have."""

    files: tuple[ScannedFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def partition(self) -> Any:
        """The values by which the table is partitioned, in their binary form."""
        return self.files[0].task.file.partition

    @property
    def rows(self) -> int | None:
        """The rows that the manifests tell of; None if some of them may be deleted."""
        if any(file.has_deletes for file in self.files):
            return None
        return sum(int(file.task.file.record_count) for file in self.files)

    @property
    def states(self) -> frozenset[tuple[str, frozenset[str]]]:
        """What decides the rows of its files."""
        return frozenset(file.state for file in self.files)


def scanned_files(table: Table) -> list[ScannedFile]:
    """Return the files of the newest snapshot, the oldest commit first.

    Raises what pyiceberg raises, which reads no equality deletes.
    """
    if table.metadata.current_snapshot() is None:
        return []
    return [ScannedFile(task) for task in reversed(list(table.scan().plan_files()))]


def plan_bins(
    files: Sequence[ScannedFile], spec_id: int, target_bytes: int, smaller_than: int
) -> Iterator[Bin]:
    """Yield the groups of files that become one file each.

    A group has at least two files, or one of which rows are deleted. Files of ``smaller_than``
    bytes and more stay as they are unless rows of them are deleted, and so do files of an earlier
    partitioning.
    """
    by_values: dict[str, list[ScannedFile]] = {}
    for file in files:
        entry = file.task.file
        is_parquet = entry.file_format.value.upper() == "PARQUET"
        if entry.spec_id != spec_id or not is_parquet:
            continue
        if file.size_bytes < smaller_than or file.has_deletes:
            by_values.setdefault(repr(entry.partition), []).append(file)
    for neighbours in by_values.values():
        for run in file_runs(neighbours, target_bytes):
            if len(run) > 1 or run[0].has_deletes:
                yield Bin(tuple(run))
