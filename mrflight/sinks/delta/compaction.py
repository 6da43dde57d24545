"""Compaction: rewrites small files of a Delta table as fewer ones, and swaps them in one version.

deltalake's own optimize (1.6) is not used. It leaves NaN out of the bounds that it writes, and
readers skip a file with such bounds, or with a missing one, though it has rows that they look for
(see `parts.file_statistics`). The files that it wrote for a commit that failed stay, and nothing
shows which program wrote them. Here the files are encoded, named and cleaned up like those of a
job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.commit_guard import MAX_TRIES, CommitGuard, random_backoff
from mrflight.sinks.commit.job_files import JobFiles
from mrflight.sinks.delta.commit_identity import RunIdentity
from mrflight.sinks.delta.compaction_plan import Bin, plan_bins
from mrflight.sinks.delta.rollback import delete_uncommitted
from mrflight.sinks.delta.synced_log import commit_synced, sync_before, sync_entry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.sources.delta_source import active_files, file_splits
from mrflight.sources.parquet_source import ParquetReader
from mrflight.storage.delta import can_remove_files, delta_errors, import_deltalake, removable_paths
from mrflight.storage.part_name import PartId
from mrflight.system.deadlines import NO_DEADLINE

WHOLE_FILE_BYTES = 1 << 62
"""A split size that no file exceeds, so that each file is one split."""


class _RewrittenBin(msgspec.Struct, frozen=True):
    """A bin, and the new files that have its rows."""

    bin: Bin
    parts: tuple[PartFile, ...]


class Compaction(msgspec.Struct, frozen=True):
    """A committed compaction."""

    version: int
    bins: tuple[Bin, ...]
    """The files that it removed."""
    parts: tuple[PartFile, ...]
    """The files that it added."""


def plan_compaction(
    table: DeltaTable, target_bytes: int, smaller_than: int | None = None
) -> tuple[Bin, ...]:
    """Return the files that `compact` would rewrite. Raises CommitError if the log is unreadable.

    Files of ``smaller_than`` bytes and more stay as they are, by default those of ``target_bytes``.
    Files outside the table's folder are left out, and so are files that a transaction would not
    remove from the log, because their writer encoded their paths differently than deltalake. Raises
    OutputError if the installed deltalake has no such transactions.
    """
    if not can_remove_files():
        raise OutputError(
            f"{table.location.url} cannot be compacted: hops-deltalake (1.4) cannot remove single "
            "files from a log; --no-compact does the rest of the maintenance"
        )
    with delta_errors(f"the Delta table {table.location.url} cannot be read"):
        files = active_files(table.handle)
        kept = removable_paths([file.path for file in files])
    limit = target_bytes if smaller_than is None else smaller_than
    small = (file for file in files if file.path in kept and file.size_bytes < limit)
    return plan_bins(small, target_bytes)


def compact(table: DeltaTable, target_bytes: int, job_id: str) -> Compaction | None:
    """Rewrite the files of each bin as one file, and commit; None if there is nothing to do.

    Files that other writers append meanwhile stay as they are. If they remove a file of a bin, the
    bin is left alone. Raises what `plan_compaction` raises, InputError if a file cannot be read,
    and CommitError if the store fails or other writers were faster each time. After a failure or
    an interrupt the new files are removed, unless the log cannot be read and may name them.
    """
    return compact_bins(table, plan_compaction(table, target_bytes), job_id)


def compact_bins(table: DeltaTable, bins: Sequence[Bin], job_id: str) -> Compaction | None:
    """Do as `compact` with the files that were planned."""
    return _Compactor(table, job_id).run(bins) if bins else None


class _Compactor:
    """Compacts one table under one job id."""

    def __init__(self, table: DeltaTable, job_id: str) -> None:
        location = table.location
        self._location, self._job_id = location, job_id
        self._identity = RunIdentity.of(job_id)
        self._schema, self._partition_by = table.schema, table.partition_by
        self._job_files = JobFiles.of(location, job_id, bool(table.partition_by))
        self._guard = CommitGuard(location.url)
        self._reader = ParquetReader(table.schema, root=location)
        self._writer = FilePartWriter(
            location,
            job_id,
            TableSchema(location.url, True, table.partition_by, table.schema),
            FileFormat("delta", table.indexed_columns),
        )

    def run(self, bins: Iterable[Bin]) -> Compaction | None:
        try:
            rewritten = [self._rewrite(number, bin) for number, bin in enumerate(bins)]
            self._check_exist(rewritten)
            return self._commit(rewritten)
        finally:
            # The log is asked even after an error, which may have come right after the commit.
            delete_uncommitted(self._job_files, self._identity, self._guard)

    def _rewrite(self, number: int, bin: Bin) -> _RewrittenBin:
        parts = self._writer.write(PartId(number, 0), self._schema, self._rows(bin))
        before = [file.rows for file in bin.files if file.rows is not None]
        written = sum(part.rows for part in parts)
        if len(before) == len(bin.files) and sum(before) != written:
            raise CommitError(
                f"{self._location.url}: files that have {sum(before):,} rows by the table's log "
                f"were read as {written:,} rows; nothing was changed: look at {min(bin.paths)} "
                "first"
            )
        return _RewrittenBin(bin, tuple(parts))

    def _rows(self, bin: Bin) -> Iterator[pa.RecordBatch]:
        for file in bin.files:
            for split in file_splits(self._location, file, self._schema.names, WHOLE_FILE_BYTES):
                yield from self._reader.read(split)

    def _check_exist(self, rewritten: list[_RewrittenBin]) -> None:
        """Raise CommitError if a new file is gone; a log that named it would break the table."""
        written = {part.path for one in rewritten for part in one.parts}
        if gone := written - self._job_files.paths():
            raise CommitError(
                f"{self._location.url}: {min(gone)} is gone, which this compaction wrote; nothing "
                "was changed: did mrflight clean, or something like it, run at the same time?"
            )

    def _commit(self, rewritten: list[_RewrittenBin]) -> Compaction | None:
        failure: CommitError | None = None
        before: int | None = None
        for tries in range(MAX_TRIES):
            if tries > 1:
                random_backoff()
            table = DeltaTable.load(self._location)
            if table is None or not self._fits(table):
                raise CommitError(
                    f"{self._location.url} was removed, or its columns were changed, while it was "
                    "compacted; nothing was changed, run the compaction again"
                )
            if failure is not None:
                if (done := self._identity.find(table)) is not None:
                    sync_entry(self._location, table.version)
                    return _to_compaction(done, rewritten)  # the commit took effect all the same
                if table.version == before:
                    raise failure  # no other writer was faster, so the store has failed
            active = {file.path for file in active_files(table.handle)}
            rewritten = [one for one in rewritten if one.bin.paths <= active]
            if not rewritten:
                return None
            try:
                self._swap(table, rewritten)
            except CommitError as error:
                failure, before = error, table.version
                continue
            return _to_compaction(table.version + 1, rewritten)
        raise CommitError(
            f"{self._location.url}: other writers were faster {MAX_TRIES} times; nothing was "
            "changed, run the compaction again when they are done"
        ) from failure

    def _fits(self, table: DeltaTable) -> bool:
        """Return whether the new files have all columns that are needed; others may be added."""
        columns = {field.name: field for field in table.schema}
        return table.partition_by == self._partition_by and all(
            columns.get(field.name) == field for field in self._schema
        )

    def _swap(self, table: DeltaTable, rewritten: list[_RewrittenBin]) -> None:
        """Commit to this version of the table; raise CommitError if it is not the newest."""
        deltalake = import_deltalake()
        now_ms = time.time_ns() // 1_000_000
        actions = [action for one in rewritten for action in _actions(one, now_ms)]
        write = partial(
            table.handle.create_write_transaction,
            actions,
            "append",
            deltalake.Schema.from_arrow(table.schema),
            partition_by=list(self._partition_by),
            commit_properties=deltalake.CommitProperties(
                custom_metadata={"mrflightJob": self._job_id, "mrflightMaintain": "compact"},
                max_commit_retries=0,
                app_transactions=[
                    deltalake.Transaction(self._identity.app_id, table.version + 1, now_ms),
                ],
            ),
        )
        with delta_errors(f"the Delta table {self._location.url} did not take the compaction"):
            names = [part.path for one in rewritten for part in one.parts]
            sync_before(self._location, table.version, names)
            self._guard.commit_once(partial(commit_synced, table, write), NO_DEADLINE)


def _actions(rewritten: _RewrittenBin, now_ms: int) -> list[Any]:
    transaction = import_deltalake().transaction
    values = rewritten.parts[0].partition_values if rewritten.parts else {}
    added = [
        transaction.AddAction(part.path, part.size_bytes, values, now_ms, False, part.stats)
        for part in rewritten.parts
    ]
    removed = [
        # As for the files that are added, this is the path on the disk.
        transaction.RemoveAction(unquote(file.path), False, now_ms, file.size_bytes, values)
        for file in rewritten.bin.files
    ]
    return added + removed


def _to_compaction(version: int, rewritten: list[_RewrittenBin]) -> Compaction:
    parts = tuple(part for one in rewritten for part in one.parts)
    return Compaction(version, tuple(one.bin for one in rewritten), parts)
