"""Compaction: rewrites small files of an Iceberg table as fewer ones, and swaps them in one commit.

pyiceberg (0.12) has no such operation. The rows are read by pyiceberg, so deleted rows are left out
and columns that were renamed or added have their names and values of now. They are written by our
writer, like those of a job. The commit is conditional on the snapshot that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError, OutputError, UnsyncedCommitError
from mrflight.sinks.commit.commit_guard import MAX_TRIES, CommitGuard, random_backoff
from mrflight.sinks.commit.job_files import JobFiles, sync_names
from mrflight.sinks.iceberg.compaction_plan import Bin, ScannedFile, plan_bins, scanned_files
from mrflight.sinks.iceberg.data_files import data_file
from mrflight.sinks.iceberg.history import JOB, has_commit_of_job, recorded_summaries
from mrflight.sinks.iceberg.schema import IcebergSchema
from mrflight.sinks.iceberg.table import (
    TableInCatalog,
    arrow_schema,
    check_writable,
    data_folder,
    field_ids,
    sync_committed,
)
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.stored_type import UnstorableTypeError
from mrflight.storage.iceberg import catalog_errors, is_refusal
from mrflight.storage.part_name import PartId
from mrflight.system.deadlines import NO_DEADLINE

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


class RewrittenBin(msgspec.Struct, frozen=True):
    """A bin, and the new files that have its rows."""

    bin: Bin
    parts: tuple[PartFile, ...]


class Compaction(msgspec.Struct, frozen=True):
    """A committed compaction."""

    snapshot: int
    rewritten: tuple[RewrittenBin, ...]


def plan_compaction(handle: Table, url: str, target_bytes: int, smaller_than: int) -> list[Bin]:
    """Return the files that a compaction would rewrite.

    Raises OutputError for a table that mrflight cannot rewrite, and CommitError if its manifests
    cannot be read.
    """
    check_writable(handle.metadata, url)
    try:
        arrow_schema(handle.metadata)
    except UnstorableTypeError as error:
        raise OutputError(f"{url} cannot be compacted: {error}") from error
    files = _scan(handle, url)
    return list(plan_bins(files, handle.metadata.default_spec_id, target_bytes, smaller_than))


def compact_bins(
    table: TableInCatalog, handle: Table, bins: Sequence[Bin], job_id: str
) -> Compaction | None:
    """Rewrite the files of each bin as one file, and commit; None if there is nothing to do.

    ``handle`` is the version of the table that was planned. Files that other writers add meanwhile
    stay as they are. If they remove a file of a bin, or delete rows of it, the bin is left alone.
    Raises OutputError and CommitError, with nothing changed, and the new files removed unless the
    commit may still take effect.
    """
    return _Compactor(table, handle, job_id).run(bins) if bins else None


class _Compactor:
    """Compacts one table under one job id."""

    def __init__(self, table: TableInCatalog, handle: Table, job_id: str) -> None:
        self._table, self._handle, self._job_id = table, handle, job_id
        metadata = handle.metadata
        self._planned = _shape(metadata)
        self._schema, self._ids = arrow_schema(metadata), field_ids(metadata)
        self._folder = data_folder(metadata)
        location = table.address.location(self._folder)
        self._job_files = JobFiles.of(location, job_id, False)
        self._writer = FilePartWriter(
            location,
            job_id,
            IcebergSchema(table.url, False, (), self._schema),
            FileFormat("iceberg", field_ids=self._ids),
        )
        self._guard = CommitGuard(table.url)
        self._kept: frozenset[str] = frozenset()
        self._may_be_late = False

    def run(self, bins: Sequence[Bin]) -> Compaction | None:
        try:
            rewritten = [self._rewrite(number, bin) for number, bin in enumerate(bins)]
            done = self._commit(rewritten)
            if done is not None:
                self._kept = frozenset(part.path for one in done.rewritten for part in one.parts)
            return done
        finally:
            if not (self._guard.outcome_unknown or self._may_be_late):
                self._job_files.delete_except(self._kept)

    def _rewrite(self, number: int, bin: Bin) -> RewrittenBin:
        with catalog_errors(f"files of {self._table.url} cannot be rewritten"):
            parts = self._writer.write(PartId(number, 0), self._schema, self._rows(bin))
        written = sum(part.rows for part in parts)
        if bin.rows is not None and bin.rows != written:
            raise CommitError(
                f"{self._table.url}: files that have {bin.rows:,} rows by the table's manifests "
                f"were read as {written:,} rows; nothing was changed: look at "
                f"{bin.files[0].task.file.file_path} first"
            )
        return RewrittenBin(bin, tuple(parts))

    def _rows(self, bin: Bin) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, of which one is in memory at a time."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        metadata = self._handle.metadata
        scan = ArrowScan(metadata, self._handle.io, metadata.schema(), AlwaysTrue())
        for file in bin.files:
            yield from scan.to_record_batches([file.task])

    def _commit(self, rewritten: list[RewrittenBin]) -> Compaction | None:
        failure: CommitError | None = None
        handle = self._handle
        for tries in range(MAX_TRIES):
            if tries:
                random_backoff()
                newer = self._load(failure)
                if newer.metadata.current_snapshot_id != handle.metadata.current_snapshot_id:
                    self._may_be_late = False  # a try on an older snapshot cannot take effect now
                handle = newer
                if (done := has_commit_of_job(handle.metadata, self._job_id)) is not None:
                    sync_committed(handle)
                    self._may_be_late = False
                    return Compaction(done, tuple(rewritten))
            rewritten = self._left(handle, rewritten)
            if not rewritten:
                return None
            try:
                return Compaction(self._swap(handle, rewritten), tuple(rewritten))
            except CommitError as error:
                if is_refusal(error) and not _is_conflict(error):
                    raise
                failure = error
        raise CommitError(
            f"{self._table.url}: other writers were faster {MAX_TRIES} times; nothing was changed, "
            "run the compaction again when they are done"
        ) from failure

    def _load(self, failure: CommitError | None) -> Table:
        """Load the table after a commit that failed, which may have taken effect all the same."""
        table = self._table.load()
        if table is None or _shape(table.metadata) != self._planned:
            raise CommitError(
                f"{self._table.url} was removed, or its columns or partitions were changed, while "
                "it was compacted; nothing was changed, run the compaction again"
            ) from failure
        return table

    def _left(self, handle: Table, rewritten: list[RewrittenBin]) -> list[RewrittenBin]:
        """Return the bins whose files are still there, with the same rows."""
        if handle is self._handle:
            return rewritten
        there = {file.state for file in _scan(handle, self._table.url)}
        return [one for one in rewritten if one.bin.states <= there]

    def _swap(self, handle: Table, rewritten: list[RewrittenBin]) -> int:
        """Commit to this version of the table; raise CommitError if it is not the newest."""
        from mrflight.sinks.iceberg.replacing_snapshot import replacing_snapshot

        what = f"the Iceberg table {self._table.url} did not take the compaction"
        removed = [file.task.file for one in rewritten for file in one.bin.files]
        metadata = handle.metadata
        added = [
            data_file(part, f"{self._folder}/{part.path}", metadata, self._ids, one.bin.partition)
            for one in rewritten
            for part in one.parts
        ]
        with catalog_errors(what):
            self._check_exist(rewritten)
            sync_names(
                self._job_files.table, [part.path for one in rewritten for part in one.parts]
            )
            # With the offsets of streams, which older snapshots take along when they expire.
            summary = {JOB: self._job_id, **recorded_summaries(metadata)}
            snapshot = replacing_snapshot(handle, removed, added, summary)
        try:
            with catalog_errors(what):
                self._guard.commit_once(snapshot.commit, NO_DEADLINE)
        except UnsyncedCommitError:  # the new files are committed
            self._may_be_late = True
            raise
        except CommitError as error:
            if is_refusal(error):
                with suppress(Exception):
                    snapshot.discard()
            else:
                self._may_be_late = not self._table.address.is_in_process
            raise
        self._may_be_late = False
        return snapshot.number

    def _check_exist(self, rewritten: list[RewrittenBin]) -> None:
        """Raise CommitError if a new file is gone; a snapshot that named it would break reads."""
        written = {part.path for one in rewritten for part in one.parts}
        if gone := written - self._job_files.paths():
            raise CommitError(
                f"{self._table.url}: {min(gone)} is gone, which this compaction wrote; nothing was "
                "changed: did mrflight clean, or something like it, run at the same time?"
            )


def _scan(handle: Table, url: str) -> list[ScannedFile]:
    with catalog_errors(f"the manifests of {url} cannot be read"):
        return scanned_files(handle)


def _shape(metadata: TableMetadata) -> tuple[str, int, int, str]:
    """Return what must stay the same while files are rewritten."""
    return (
        str(metadata.table_uuid),
        metadata.current_schema_id,
        metadata.default_spec_id,
        data_folder(metadata),
    )


def _is_conflict(error: CommitError) -> bool:
    """Return whether another writer was faster."""
    from pyiceberg.exceptions import CommitFailedException

    return isinstance(error.__cause__, CommitFailedException)
