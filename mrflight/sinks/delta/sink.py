"""The sink that commits to a Delta table."""

from __future__ import annotations

import pyarrow as pa

from mrflight.config.spec import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.job_files import (
    LOG,
    JobFiles,
    check_is_folder,
    is_job_file,
    relative_path,
)
from mrflight.sinks.delta.commit import DeltaCommit
from mrflight.sinks.delta.entry_commit import puts_entries
from mrflight.sinks.delta.rollback import delete_uncommitted
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.table_snapshot import Following
from mrflight.sinks.parts.base import PartWriter
from mrflight.sinks.parts.file_format import DEFAULT_CODEC, FileFormat
from mrflight.sinks.parts.file_statistics import INDEXED_COLUMNS
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.preflight import check_writable
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import Location
from mrflight.storage.delta import import_deltalake, other_client_hint, why_unreachable


class DeltaSink(Sink):
    """Part files beside the table's, then one version of its log that names the winners."""

    def __init__(
        self, location: Location, spec: OutputSection, job_id: str, app_id: str | None
    ) -> None:
        """Look at what is there; OutputError for what cannot work."""
        import_deltalake()
        _check_name(location)
        check_is_folder(location)
        table = _table_at(location)
        self._mode = spec.mode
        self._app_id = app_id or f"mrflight-{job_id}"
        self._committed: int | None = None
        if table is not None and app_id is not None:  # or the id is new: nobody can have committed
            self._committed = table.committed_version(app_id)
        self._location, self._job_id = location, job_id
        self._following = Following(location, self._app_id)
        self._seen_version = None if table is None else table.version
        if table is not None and self._committed is None:
            _check_mode(table, spec)
            self._following.begin(table)
        if self._committed is None:  # who has nothing to do needs no permission for it
            check_writable(location)
            check_writable(location.child(LOG))
        keeps_rows = spec.mode in ("append", "merge")
        existing = table.schema if table is not None and keeps_rows else None
        operation = "merged into" if spec.mode == "merge" else "appended to"
        self.needs_lock = location.store.lock_name(location.path) is not None
        self._target = TableSchema(
            location.url,
            True,
            tuple(spec.partition_by),
            existing,
            spec.schema == "evolve",
            operation,
        )
        indexed_columns = INDEXED_COLUMNS if table is None else table.indexed_columns
        self._part_writer = FilePartWriter(
            location,
            job_id,
            self._target,
            FileFormat("delta", indexed_columns, spec.compression or DEFAULT_CODEC),
        )
        self._job_files = JobFiles.of(location, job_id, bool(spec.partition_by))
        self._guard = CommitGuard(location.url)
        self._has_landed = False
        self._has_stale_files = True
        self._kept: set[str] | None = None

    @property
    def part_writer(self) -> PartWriter:
        return self._part_writer

    def was_committed(self) -> bool:
        return self._committed is not None

    def committed_version(self) -> int | None:
        return self._committed

    def commit(self, commit: Commit) -> int:
        schema = common_schema(commit.parts, null_fits=False) if commit.parts else commit.schema
        self._check_parts(commit)
        return self._land(commit, self._delta_commit(commit, schema))

    def _delta_commit(self, commit: Commit, schema: pa.Schema) -> DeltaCommit:
        return DeltaCommit(
            self._location,
            self._mode,
            self._target,
            schema,
            commit.parts,
            self._app_id,
            self._job_id,
            self._guard,
            self._following,
            self._seen_version,
            commit.deadline,
            commit.lock,
        )

    def _land(self, commit: Commit, transaction: DeltaCommit) -> int:
        version, self._kept = transaction.run()
        self._has_landed = True
        self._has_stale_files = commit.has_stale_files
        return version

    def cleanup(self) -> None:
        # A disk is always looked at, for folders: of others a look is a request.
        if self._kept is not None and (self._has_stale_files or self._location.store.is_disk):
            self._job_files.delete_except(self._kept)

    def _check_parts(self, commit: Commit) -> None:
        """CommitError where a part is gone: a log that names it would make the table unreadable."""
        there = commit.deadline.run(
            self._job_files.paths, f"the files in {self._location.url} were listed"
        )
        gone = {part.path for part in commit.parts} - there
        if gone:
            raise CommitError(
                f"{self._location.url}: {min(gone)} is gone, which this job wrote; did "
                "mrflight clean, or something like it, run at the same time?"
            )

    def abort(self) -> None:
        """See `Sink.abort`. Where the log cannot be read, nothing is known to be uncommitted."""
        if not self._has_landed:
            delete_uncommitted(self._job_files, self._app_id, self._guard)


def _check_name(location: Location) -> None:
    if (why := why_unreachable(location)) is not None:
        raise OutputError(f"output.table: {location.url}: {why}; choose another name")


def _table_at(location: Location) -> DeltaTable | None:
    """What is there; None where one can be made. OutputError where its place is taken."""
    table = DeltaTable.load(location)
    if table is not None:
        return table
    try:
        _check_nothing_else(location)
    except OutputError:
        table = DeltaTable.load(location)  # which another job may have made meanwhile
        if table is None:
            raise
    return table


def _check_nothing_else(location: Location) -> None:
    """OutputError where the place of a new table is taken.

    Part files of a job that ended before its commit do no harm: the log does not name them. Nor
    does a log entry that it had begun.
    """
    for info in location.walk():
        if info.is_file and not is_job_file(location, info):
            raise OutputError(
                f"output.table: the folder {location.url} is not a Delta table and holds other "
                f"files ({relative_path(location, info.path)}); choose another folder"
            )


def _check_mode(table: DeltaTable, spec: OutputSection) -> None:
    if spec.mode == "error":
        raise OutputError(
            f"output.table: the Delta table {table.location.url} exists; choose another, or set "
            "output.mode to append or overwrite"
        )
    table.check_writable(spec.mode)
    if spec.schema == "evolve" and puts_entries(table.location, table):
        raise OutputError(
            f'output.schema: "evolve" adds columns by a version of the log that hops-deltalake '
            f"(1.4) does not write; add them to {table.location.url} first, by ALTER TABLE ... ADD "
            f"COLUMNS in Spark; {other_client_hint(table.location)}"
        )
    if spec.mode == "append":
        table.check_partition_by(spec.partition_by)
    if spec.mode == "merge":
        from mrflight.sinks.delta.merge_commit import check_mergeable

        table.check_partition_by(spec.partition_by, "merged into")
        check_mergeable(table, spec.keys)
