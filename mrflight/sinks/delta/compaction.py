"""Small files of a Delta table written again as fewer ones, and one version that swaps them.

Not by deltalake's own optimize (1.6): it leaves NaN out of the bounds that it writes, and a file
whose log entry has such bounds, or lacks one beside others, is skipped by readers that look for
those rows (see `delta_stats`). What it wrote for a commit that failed stays, and nobody can tell
whose it is. Here the files are encoded, named and cleaned up as those of a job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.commit_guard import MAX_TRIES, CommitGuard, random_backoff
from mrflight.sinks.commit.job_files import JobFiles
from mrflight.sinks.delta.compaction_plan import Bin, plan_bins
from mrflight.sinks.delta.rollback import delete_uncommitted
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.part_name import PartId
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.sources.delta_source import DeltaReader, active_files, file_splits
from mrflight.storage.delta import can_remove_files, delta_errors, import_deltalake, removable_paths
from mrflight.system.deadlines import NO_DEADLINE

WHOLE_FILE = 1 << 62
"""Bytes of a split that a file is never larger than."""


class _Rewritten(msgspec.Struct, frozen=True):
    """A bin, and the files that hold its rows now."""

    bin: Bin
    parts: tuple[PartFile, ...]


class Compacted(msgspec.Struct, frozen=True):
    """What one version swapped."""

    version: int
    bins: tuple[Bin, ...]
    parts: tuple[PartFile, ...]


def compactable(table: DeltaTable, target_bytes: int) -> tuple[Bin, ...]:
    """What `compact` would write again. CommitError where the log cannot be read.

    Without files that a transaction would not take out of the log, as their writer encoded their
    paths otherwise than deltalake does, and those that lie elsewhere. Raises OutputError where
    the installed deltalake has no such transactions.
    """
    if not can_remove_files():
        raise OutputError(
            f"{table.location.url} cannot be compacted: hops-deltalake (1.4) has no transaction "
            "that takes single files out of a log; --no-compact does the rest"
        )
    with delta_errors(f"the Delta table {table.location.url} cannot be read"):
        files = active_files(table.handle)
        kept = removable_paths([file.path for file in files])
    return plan_bins((file for file in files if file.path in kept), target_bytes)


def compact(table: DeltaTable, target_bytes: int, job_id: str) -> Compacted | None:
    """Write the files of each bin as one, and commit that; None where there is nothing to do.

    What others append meanwhile stays as it is. Bins of which they removed a file are left alone.
    Raises as `compactable`, InputError where a file cannot be read, and CommitError where the
    store fails, or others were faster each time; then, and after an interrupt, the new files are
    gone again, unless the log cannot be read, and may name them.
    """
    bins = compactable(table, target_bytes)
    return _Compaction(table, job_id).run(bins) if bins else None


class _Compaction:
    def __init__(self, table: DeltaTable, job_id: str) -> None:
        location = table.location
        self._location, self._job_id = location, job_id
        self._app_id = f"mrflight-{job_id}"
        self._schema, self._partition_by = table.schema, table.partition_by
        self._job_files = JobFiles.of(location, job_id, bool(table.partition_by))
        self._guard = CommitGuard(location.url)
        self._reader = DeltaReader(table.schema, location)
        self._writer = FilePartWriter(
            location,
            job_id,
            TableSchema(location.url, True, table.partition_by, table.schema),
            FileFormat("delta", table.indexed_columns),
        )

    def run(self, bins: Iterable[Bin]) -> Compacted | None:
        try:
            rewritten = [self._rewrite(number, bin) for number, bin in enumerate(bins)]
            self._check_there(rewritten)
            return self._commit(rewritten)
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        """Also after a commit: an interrupt, or an error, may have come right after it."""
        delete_uncommitted(self._job_files, self._app_id, self._guard)

    def _rewrite(self, number: int, bin: Bin) -> _Rewritten:
        parts = self._writer.write(PartId(number, 0), self._schema, self._rows(bin))
        before = [file.rows for file in bin.files if file.rows is not None]
        written = sum(part.rows for part in parts)
        if len(before) == len(bin.files) and sum(before) != written:
            raise CommitError(
                f"{self._location.url}: files that hold {sum(before):,} rows by its log were read "
                f"as {written:,} rows; nothing was changed: look at {min(bin.paths)} first"
            )
        return _Rewritten(bin, tuple(parts))

    def _rows(self, bin: Bin) -> Iterator[pa.RecordBatch]:
        for file in bin.files:
            for split in file_splits(self._location, file, self._schema.names, WHOLE_FILE):
                yield from self._reader.read(split)

    def _check_there(self, rewritten: list[_Rewritten]) -> None:
        """CommitError where a new file is gone: a log that names it would make rows unreadable."""
        written = {part.path for one in rewritten for part in one.parts}
        if gone := written - self._job_files.paths():
            raise CommitError(
                f"{self._location.url}: {min(gone)} is gone, which this compaction wrote; nothing "
                "was changed: did mrflight clean, or something like it, run at the same time?"
            )

    def _commit(self, rewritten: list[_Rewritten]) -> Compacted | None:
        failure: CommitError | None = None
        before: int | None = None
        for tries in range(MAX_TRIES):
            if tries > 1:
                random_backoff()
            table = DeltaTable.load(self._location)
            if table is None or not self._fits(table):
                raise CommitError(
                    f"{self._location.url} was removed, or got other columns, while it was "
                    "compacted; nothing was changed, run it again"
                )
            if failure is not None:
                if (done := table.committed_version(self._app_id)) is not None:
                    return _compacted(done, rewritten)  # it had landed all the same
                if table.version == before:
                    raise failure  # nobody was faster: it is the store
            there = {file.path for file in active_files(table.handle)}
            rewritten = [one for one in rewritten if one.bin.paths <= there]
            if not rewritten:
                return None
            try:
                self._swap(table, rewritten)
            except CommitError as error:
                failure, before = error, table.version
                continue
            return _compacted(table.version + 1, rewritten)
        raise CommitError(
            f"{self._location.url}: other writers were faster {MAX_TRIES} times; nothing was "
            "changed, run it again when they are done"
        ) from failure

    def _fits(self, table: DeltaTable) -> bool:
        """Whether the new files still say all that the old ones do; columns may have been added."""
        columns = {field.name: field for field in table.schema}
        return table.partition_by == self._partition_by and all(
            columns.get(field.name) == field for field in self._schema
        )

    def _swap(self, table: DeltaTable, rewritten: list[_Rewritten]) -> None:
        """Commit to this version of the table; CommitError where it is not the newest any more."""
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
                    deltalake.Transaction(self._app_id, table.version + 1, now_ms),
                ],
            ),
        )
        with delta_errors(f"the Delta table {self._location.url} did not take the compaction"):
            self._guard.commit_once(write, NO_DEADLINE)


def _actions(rewritten: _Rewritten, now_ms: int) -> list[Any]:
    transaction = import_deltalake().transaction
    values = rewritten.parts[0].partition_values if rewritten.parts else {}
    added = [
        transaction.AddAction(part.path, part.size_bytes, values, now_ms, False, part.stats)
        for part in rewritten.parts
    ]
    removed = [
        # As with those that are added, the path is the one that the disk has.
        transaction.RemoveAction(unquote(file.path), False, now_ms, file.size_bytes, values)
        for file in rewritten.bin.files
    ]
    return added + removed


def _compacted(version: int, rewritten: list[_Rewritten]) -> Compacted:
    parts = tuple(part for one in rewritten for part in one.parts)
    return Compacted(version, tuple(one.bin for one in rewritten), parts)
