"""The sink that commits to a table of a DuckLake."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError, UnsyncedCommitError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.job_files import JobFiles, check_is_folder, sync_names
from mrflight.sinks.commit.run_name import find_committed
from mrflight.sinks.ducklake import records
from mrflight.sinks.ducklake.commit import CommittedSnapshot, LakeCommit
from mrflight.sinks.ducklake.lake_schema import LakeSchema
from mrflight.sinks.ducklake.output import JobIds, LakeOutput, check_partition_by, existing_schema
from mrflight.sinks.parts.base import PartWriter
from mrflight.sinks.parts.file_format import DEFAULT_CODEC, FileFormat
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.preflight import check_writable
from mrflight.storage import Location, locate
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.lake import Lake, LakeSession
from mrflight.storage.ducklake.process import LakeError, LakeProcessLostError
from mrflight.storage.ducklake.table import (
    LakeTable,
    TableName,
    find_commit,
    find_table,
    new_folder,
    newest_snapshot,
    parse_table_name,
)
from mrflight.storage.option_names import NAME_NODES, scheme_of

SMALL_BYTES = 32 << 20
"""Beside a stream, files from this size on are left alone."""


class _Found(NamedTuple):
    """What a job finds when it begins."""

    table: LakeTable | None = None
    run: str | None = None
    """The job that has committed the run."""
    snapshot: int | None = None
    """The snapshot of that job."""
    newest: int = -1
    """The newest snapshot."""


class DuckLakeSink(Sink):
    """Part files in the folder of a table, then one transaction that registers them."""

    def __init__(
        self,
        spec: OutputSection,
        base: Path,
        options: Mapping[str, str],
        job_id: str,
        app_id: str | None,
    ) -> None:
        """Look at the lake; raise OutputError if the job cannot write to it.

        Raises CommitError if the server of the catalog does not answer.
        """
        assert spec.catalog is not None, "the output was checked"
        ids = JobIds(job_id, app_id)
        address = parse_address(spec.catalog, base, "output.catalog")
        name = parse_table_name(spec.table, "output.table")
        data_path = _data_path(spec, base, options)
        lake = Lake(address, options, data_path)
        url = f"{name} in {lake.url}"
        try:
            found = _look(lake, name, ids.app_id)
        except LakeError as error:
            message = f"output.catalog: {lake.url} cannot be used: {error}"
            if error.is_outage or isinstance(error, LakeProcessLostError):
                raise CommitError(message) from error
            raise OutputError(message) from error
        _check_data_path(lake, data_path)
        self._found, self._lake = found, lake
        location = _folder(lake, found.table, name, base, options)
        if found.run is None:
            check_is_folder(location)
            if found.table is not None:
                _check_mode(url, found.table, spec)
            check_writable(location)
        keeps = spec.mode == "append" and found.table is not None and found.run is None
        existing = existing_schema(url, found.table) if keeps and found.table else None
        target = LakeSchema(url, False, tuple(spec.partition_by), existing, spec.schema == "evolve")
        self._output = LakeOutput(
            lake, name, location, spec.mode, target, ids, found.table, found.newest
        )
        file_format = FileFormat("ducklake", codec=spec.compression or DEFAULT_CODEC)
        self._part_writer = FilePartWriter(location, ids.job_id, target, file_format)
        self._job_files = JobFiles.of(location, ids.job_id, bool(spec.partition_by))
        self._commit: LakeCommit | None = None
        self._committed: CommittedSnapshot | None = None

    @property
    def part_writer(self) -> PartWriter:
        return self._part_writer

    def was_committed(self) -> bool:
        return self._found.run is not None

    def committed_version(self) -> int | None:
        return self._found.snapshot

    def stored_schema(self) -> pa.Schema | None:
        return self._output.target.existing

    def recorded_offsets(self, stream: str) -> dict[str, int]:
        name = self._output.name
        if not self._lake.may_exist:
            return {}
        try:
            with self._lake.session() as session:
                if find_table(session, name, newest_snapshot(session)) is None:
                    return {}
                return records.read_offsets(session, records.offsets_table(name, stream))
        except LakeError as error:
            if error.is_missing:
                return {}
            raise CommitError(f"{self._output.url}: offsets cannot be read: {error}") from error

    def compact_small_files(self, min_files: int) -> int:
        from mrflight.sinks.ducklake.compaction import LakeCompaction, compact

        work = LakeCompaction(self._output.name, SMALL_BYTES)
        done = compact(self._lake, self._output.url, work, min_files)
        return 0 if done is None else done.files

    def remove_old_files(self) -> None:
        from mrflight.sinks.commit.maintenance_report import warn_of_kept
        from mrflight.sinks.ducklake.expiry import LakeExpiry, expire

        warn_of_kept(self._lake.url, expire(self._lake, LakeExpiry()).kept)

    def following(self, job_id: str) -> DuckLakeSink:
        """Return the sink of a stream's next batch, which looks at the lake when it commits."""
        sink = copy(self)
        committed = self._committed
        sink._output = replace(
            self._output,
            ids=JobIds(job_id, None),
            seen_snapshot=self._output.seen_snapshot if committed is None else committed.number,
        )
        sink._part_writer = dataclasses.replace(self._part_writer, job_id=job_id)
        sink._job_files = replace(self._job_files, job_id=job_id)
        sink._commit = sink._committed = None
        return sink

    @property
    def outcome_unknown(self) -> bool:
        return self._commit is not None and self._commit.outcome_unknown

    def commit(self, commit: Commit) -> int:
        if commit.parts:
            commit = replace(commit, schema=common_schema(commit.parts, null_fits=False))
        paths = [part.path for part in commit.parts]
        sync_names(self._job_files.table, paths, commit.deadline)
        self._commit = LakeCommit(self._output, commit)
        self._committed = self._commit.run()
        return self._committed.number

    def cleanup(self) -> None:
        assert self._commit is not None, "cleanup comes after commit"
        assert self._committed is not None, "cleanup comes after commit"
        is_disk = self._output.location.store.is_disk
        # A disk is always listed, for its folders. On other stores a listing is a request.
        if self._commit.commit.has_stale_files or is_disk or not self._committed.is_own:
            parts = self._commit.commit.parts if self._committed.is_own else ()
            self._job_files.delete_except({part.path for part in parts})

    def abort(self) -> None:
        """See `Sink.abort`. All files stay if the catalog cannot be read: they may be committed."""
        if self._committed is not None or self.outcome_unknown:
            return
        with suppress(LakeError, UnsyncedCommitError):
            if self._commit is None or not self._is_committed():
                self._job_files.delete_except(())

    def _is_committed(self) -> bool:
        if not self._lake.may_exist:
            return False
        try:
            with self._lake.session() as session:
                return self._output.find_own_commit(session) is not None
        except LakeError as error:
            if error.is_missing:
                return False
            raise


def _look(lake: Lake, name: TableName, app_id: str | None) -> _Found:
    if not lake.may_exist:
        return _Found()
    try:
        with lake.session() as session:
            return _look_in(session, name, app_id)
    except LakeError as error:
        if error.is_missing:
            return _Found()
        raise


def _look_in(session: LakeSession, name: TableName, app_id: str | None) -> _Found:
    newest = newest_snapshot(session)
    table = find_table(session, name, newest)
    if table is None or app_id is None:
        return _Found(table, newest=newest)
    run = find_committed(app_id, str(name), partial(records.find_run, session, name))
    if run is None:
        return _Found(table, newest=newest)
    number = find_commit(session, run)
    return _Found(table, run, newest if number is None else number, newest)


def _data_path(spec: OutputSection, base: Path, options: Mapping[str, str]) -> str | None:
    """Return the folder of the files of a new lake as DuckLake writes it, with a slash."""
    if spec.data_path is None:
        return None
    if scheme_of(spec.data_path) in NAME_NODES:
        raise OutputError(
            f"output.data_path: {spec.data_path} is in HDFS, which DuckDB cannot read; name a "
            "folder, or an s3:// URL"
        )
    location = locate(spec.data_path, base, options)
    path = location.path if location.store.is_disk else location.url.replace("s3a://", "s3://", 1)
    return f"{path.rstrip('/')}/"


def _check_data_path(lake: Lake, wanted: str | None) -> None:
    """Raise OutputError without a folder for files, or with another one than the lake has."""
    if lake.data_path is None:
        raise OutputError(
            f"output.data_path is missing: there is no DuckLake at {lake.url} yet; name the folder "
            "or the URL where the files of the new one are to be"
        )
    if wanted is not None and lake.data_path.rstrip("/") != wanted.rstrip("/"):
        raise OutputError(
            f"output.data_path: the DuckLake at {lake.url} has its files in {lake.data_path}, and "
            f"not in {wanted}; leave it out"
        )
    if "://" not in lake.data_path and not lake.data_path.startswith("/"):
        raise OutputError(
            f"output.catalog: the DuckLake at {lake.url} has its files in {lake.data_path}, which "
            "is relative to the folder of each process; give it an absolute path"
        )
    if lake.is_encrypted:
        raise OutputError(
            f"output.catalog: the DuckLake at {lake.url} encrypts its files, which mrflight does "
            "not; choose another"
        )


def _folder(
    lake: Lake, table: LakeTable | None, name: TableName, base: Path, options: Mapping[str, str]
) -> Location:
    """Return the folder of the part files: that of the table, or where DuckLake will put it."""
    path = new_folder(lake.data_path or "", name) if table is None else table.path
    return locate(path.rstrip("/"), base, options)


def _check_mode(url: str, table: LakeTable, spec: OutputSection) -> None:
    if spec.mode == "error":
        raise OutputError(
            f"output.table: {url} exists; choose another table, or set output.mode to append or "
            "overwrite"
        )
    if spec.mode == "append":
        check_partition_by(url, table, tuple(spec.partition_by))
