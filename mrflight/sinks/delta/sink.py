"""The sink that commits to a Delta table."""

from __future__ import annotations

import dataclasses
from copy import copy
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.job_files import (
    JobFiles,
    check_is_folder,
    is_job_file,
    relative_path,
)
from mrflight.sinks.commit.run_name import find_committed
from mrflight.sinks.delta.commit import CommittedVersion, DeltaCommit
from mrflight.sinks.delta.commit_identity import RunIdentity, StreamIdentity
from mrflight.sinks.delta.entry_commit import writes_own_entries
from mrflight.sinks.delta.output import DeltaOutput
from mrflight.sinks.delta.recorded_offsets import RecordedOffsets
from mrflight.sinks.delta.recorded_runs import find_run
from mrflight.sinks.delta.rollback import delete_uncommitted
from mrflight.sinks.delta.synced_log import sync_entry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.table_snapshot import TableSnapshot
from mrflight.sinks.parts.base import PartWriter
from mrflight.sinks.parts.file_format import DEFAULT_CODEC, FileFormat
from mrflight.sinks.parts.file_statistics import INDEXED_COLUMNS
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.preflight import check_writable
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import Location
from mrflight.storage.delta import LOG, import_deltalake, other_client_hint, why_unreachable


class DeltaSink(Sink):
    """Part files beside those of the table, then one version of its log that names them."""

    def __init__(
        self, location: Location, spec: OutputSection, job_id: str, app_id: str | None
    ) -> None:
        """Look at the table; raise OutputError if the job cannot write to it."""
        import_deltalake()
        if (why := why_unreachable(location)) is not None:
            raise OutputError(f"output.table: {location.url}: {why}; choose another name")
        check_is_folder(location)
        table = _load_table(location)
        self._committed: int | None = None
        if table is not None and app_id is not None:  # a new id cannot be committed yet
            self._committed = find_committed(app_id, location.url, partial(find_run, table))
            if self._committed is not None:
                sync_entry(location, table.version)
        snapshot = TableSnapshot(location)
        if self._committed is None:  # a job with nothing to do needs no permission for it
            if table is not None:
                _check_mode(table, spec)
                snapshot.begin(table)
            check_writable(location)
            check_writable(location.child(LOG))
        self.needs_lock = location.store.lock_name(location.path) is not None
        self._output = DeltaOutput(
            location,
            spec.mode,
            _target_schema(location, spec, table),
            RunIdentity.of(job_id, app_id),
            job_id,
            CommitGuard(location.url),
            snapshot,
        )
        indexed_columns = INDEXED_COLUMNS if table is None else table.indexed_columns
        self._part_writer = FilePartWriter(
            location,
            job_id,
            self._output.target,
            FileFormat("delta", indexed_columns, spec.compression or DEFAULT_CODEC),
        )
        self._job_files = JobFiles.of(location, job_id, bool(spec.partition_by))
        self._has_stale_files = True
        self._new_version: CommittedVersion | None = None
        self._recorded: RecordedOffsets | None = None

    @property
    def part_writer(self) -> PartWriter:
        return self._part_writer

    def was_committed(self) -> bool:
        return self._committed is not None

    def committed_version(self) -> int | None:
        return self._committed

    @property
    def outcome_unknown(self) -> bool:
        return self._output.guard.outcome_unknown

    def stored_schema(self) -> pa.Schema | None:
        return self._output.target.existing

    def compact_small_files(self, min_files: int) -> int:
        from mrflight.sinks.delta.upkeep import compact_small_files

        return compact_small_files(self._output.location, min_files)

    def remove_old_files(self) -> None:
        from mrflight.sinks.delta.upkeep import remove_old_files

        remove_old_files(self._output.location)

    def recorded_offsets(self, stream: str) -> dict[str, int]:
        table, _ = self._output.refresh()
        if self._recorded is None:
            self._recorded = RecordedOffsets(stream)
        if table is None:
            return {}
        sync_entry(table.location, table.version)
        return self._recorded.at(table)

    def following(self, job_id: str) -> DeltaSink:
        sink = copy(self)
        sink._output = replace(
            self._output,
            identity=RunIdentity.of(job_id),
            job_id=job_id,
            guard=CommitGuard(self._output.location.url),
        )
        sink._part_writer = dataclasses.replace(self._part_writer, job_id=job_id)
        sink._job_files = replace(self._job_files, job_id=job_id)
        sink._has_stale_files = True
        sink._new_version = None
        return sink

    @property
    def _is_stream(self) -> bool:
        return isinstance(self._output.identity, StreamIdentity)

    def _identify(self, commit: Commit) -> None:
        """Let the commit be that of a stream's batch if it has offsets."""
        if commit.offsets is None:
            return
        if self._recorded is None:
            self._recorded = RecordedOffsets(commit.offsets.stream)
        seen = self._output.snapshot.seen_version
        identity = StreamIdentity(
            self._output.job_id, commit.offsets, self._recorded, -1 if seen is None else seen
        )
        self._output = replace(self._output, identity=identity)

    def commit(self, commit: Commit) -> int:
        self._identify(commit)
        if commit.parts:
            commit = replace(commit, schema=common_schema(commit.parts, null_fits=False))
        self._job_files.check_exist([part.path for part in commit.parts], commit.deadline)
        return self._run(DeltaCommit(self._output, commit)).number

    def _run(self, transaction: DeltaCommit) -> CommittedVersion:
        self._new_version = transaction.run()
        self._has_stale_files = transaction.commit.has_stale_files
        if transaction.commit.offsets is not None:
            self._output.snapshot.follow(self._new_version.number)
        return self._new_version

    def cleanup(self) -> None:
        paths = None if self._new_version is None else self._new_version.paths
        # A disk is always listed, for its folders. On other stores a listing is a request, and a
        # stream's table has more and more files.
        is_listed = self._output.location.store.is_disk and not self._is_stream
        if paths is not None and (self._has_stale_files or is_listed):
            self._job_files.delete_except(paths)

    def abort(self) -> None:
        """See `Sink.abort`. If the log cannot be read, all files stay: they may be committed."""
        if self._new_version is None:
            delete_uncommitted(self._job_files, self._output.identity, self._output.guard)


def _load_table(location: Location) -> DeltaTable | None:
    """Return the table; None if a new one can be created. OutputError if other files are there."""
    table = DeltaTable.load(location)
    if table is not None:
        return table
    try:
        _check_nothing_else(location)
    except OutputError:
        table = DeltaTable.load(location)  # another job may have created it meanwhile
        if table is None:
            raise
    return table


def _check_nothing_else(location: Location) -> None:
    """Raise OutputError if there are files that do not belong to a new table.

    Part files of a job that ended before its commit do no harm, because the log does not name them.
    Neither does a log entry that was not written completely.
    """
    for info in location.walk():
        if info.is_file and not is_job_file(location, info):
            raise OutputError(
                f"output.table: the folder {location.url} is not a Delta table and holds other "
                f"files ({relative_path(location, info.path)}); choose another folder"
            )


def _target_schema(
    location: Location, spec: OutputSection, table: DeltaTable | None
) -> TableSchema:
    keeps_rows = spec.mode in ("append", "merge")
    return TableSchema(
        location.url,
        True,
        tuple(spec.partition_by),
        table.schema if table is not None and keeps_rows else None,
        spec.schema == "evolve",
        "merged into" if spec.mode == "merge" else "appended to",
    )


def _check_mode(table: DeltaTable, spec: OutputSection) -> None:
    if spec.mode == "error":
        raise OutputError(
            f"output.table: the Delta table {table.location.url} exists; choose another table, or "
            "set output.mode to append or overwrite"
        )
    table.check_writable(spec.mode)
    if spec.schema == "evolve" and writes_own_entries(table.location, table):
        raise OutputError(
            'output.schema: hops-deltalake (1.4) cannot add columns, which "evolve" needs; add '
            f"them to {table.location.url} first, by ALTER TABLE ... ADD COLUMNS in Spark; "
            f"{other_client_hint(table.location)}"
        )
    if spec.mode == "append":
        table.check_partition_by(spec.partition_by)
    if spec.mode == "merge":
        from mrflight.sinks.delta.merge_commit import check_mergeable

        table.check_partition_by(spec.partition_by, "merged into")
        check_mergeable(table, spec.keys)
