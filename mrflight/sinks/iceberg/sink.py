"""The sink that commits to an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.job_files import JobFiles, check_is_folder, sync_names
from mrflight.sinks.commit.run_name import find_committed
from mrflight.sinks.iceberg.commit import CommittedSnapshot, IcebergCommit
from mrflight.sinks.iceberg.history import find_commit, has_commit_of_job, recorded_offsets
from mrflight.sinks.iceberg.output import IcebergOutput, SeenTable
from mrflight.sinks.iceberg.schema import IcebergSchema
from mrflight.sinks.iceberg.table import (
    TableInCatalog,
    arrow_schema,
    check_partition_by,
    check_writable,
    data_folder,
    field_ids,
    partitioned_columns,
    sync_committed,
)
from mrflight.sinks.parts import preflight
from mrflight.sinks.parts.base import PartWriter
from mrflight.sinks.parts.field_ids import NO_IDS
from mrflight.sinks.parts.file_format import DEFAULT_CODEC, FileFormat
from mrflight.sinks.parts.part_schemas import common_schema
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.storage.iceberg import CatalogAddress, parse_table_name

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from mrflight.storage import Location


class IcebergSink(Sink):
    """Part files in the folder of a table, then one snapshot that names them."""

    def __init__(
        self,
        spec: OutputSection,
        base: Path,
        options: Mapping[str, str],
        job_id: str,
        app_id: str | None,
    ) -> None:
        """Look at the table; raise OutputError if the job cannot write to it."""
        address = CatalogAddress.of("output", spec, base, options)
        table = TableInCatalog(address, parse_table_name(spec.table, "output.table"))
        handle, exists = table.load_or_stage()
        metadata = handle.metadata
        existing = metadata if exists else None
        location = address.location(data_folder(metadata))
        self._committed: int | None = None
        if existing is not None and app_id is not None:  # a new id cannot be committed yet
            self._committed = find_committed(app_id, table.url, partial(find_commit, existing))
            if self._committed is not None:
                sync_committed(handle)
        if self._committed is None:  # a job with nothing to do needs no permission for it
            _check(existing, location, spec, table.url)
        self._output = _output(table, metadata, existing, spec, job_id, app_id)
        codec = spec.compression or DEFAULT_CODEC
        format = FileFormat("iceberg", codec=codec, field_ids=self._output.ids)
        self._part_writer = FilePartWriter(location, job_id, self._output.target, format)
        self._job_files = JobFiles.of(location, job_id, bool(spec.partition_by))
        self._has_stale_files = True
        self._may_be_late = False
        self._new: CommittedSnapshot | None = None
        self._paths: frozenset[str] = frozenset()

    @property
    def part_writer(self) -> PartWriter:
        return self._part_writer

    def was_committed(self) -> bool:
        return self._committed is not None

    def committed_version(self) -> int | None:
        return self._committed

    @property
    def outcome_unknown(self) -> bool:
        return self._output.guard.outcome_unknown or self._may_be_late

    def stored_schema(self) -> pa.Schema | None:
        return self._output.target.existing

    def recorded_offsets(self, stream: str) -> dict[str, int]:
        handle = self._output.table.load()
        if handle is None:
            return {}
        sync_committed(handle)
        return recorded_offsets(handle.metadata, stream, self._output.url)

    def compact_small_files(self, min_files: int) -> int:
        from mrflight.sinks.iceberg.upkeep import compact_small_files

        return compact_small_files(self._output.table, min_files)

    def remove_old_files(self) -> None:
        from mrflight.sinks.iceberg.upkeep import remove_old_files

        remove_old_files(self._output.table)

    def commit(self, commit: Commit) -> int:
        if commit.parts:
            commit = replace(commit, schema=common_schema(commit.parts, null_fits=False))
        else:
            commit = replace(commit, schema=self._output.target.to_stored(commit.schema))
        paths = [part.path for part in commit.parts]
        self._job_files.check_exist(paths, commit.deadline)
        sync_names(self._job_files.table, paths, commit.deadline)
        transaction = IcebergCommit(self._output, commit)
        try:
            self._new = transaction.run()
        finally:
            self._may_be_late = transaction.outcome_unknown
        self._has_stale_files = commit.has_stale_files
        if self._new.is_ours:
            self._paths = frozenset(part.path for part in commit.parts)
        return self._new.number

    def cleanup(self) -> None:
        if self._new is None:
            return
        stays = self._new.is_ours and not self._has_stale_files
        # A disk is always listed, for its folders. On other stores a listing is a request.
        if not stays or self._job_files.table.store.is_disk:
            self._job_files.delete_except(self._paths)

    def abort(self) -> None:
        """See `Sink.abort`. If the table cannot be loaded, all files stay: it may name them."""
        if self._new is not None or self.outcome_unknown:
            return
        try:
            handle = self._output.table.load()
        except (CommitError, OutputError):
            return
        if handle is None or has_commit_of_job(handle.metadata, self._output.job_id) is None:
            self._job_files.delete_except(())


def _target_schema(url: str, spec: OutputSection, metadata: TableMetadata | None) -> IcebergSchema:
    target = IcebergSchema(
        url, False, tuple(spec.partition_by), evolves=spec.schema == "evolve", partitioned=None
    )
    if metadata is None:
        return target
    if spec.mode == "append":
        return replace(target, existing=arrow_schema(metadata))
    return replace(target, partitioned=partitioned_columns(metadata))


def _output(
    table: TableInCatalog,
    metadata: TableMetadata,
    existing: TableMetadata | None,
    spec: OutputSection,
    job_id: str,
    app_id: str | None,
) -> IcebergOutput:
    """Return the output; ``metadata`` is that of the table, or of one that is to be created."""
    return IcebergOutput(
        table=table,
        table_location=metadata.location,
        data_folder=data_folder(metadata),
        mode=spec.mode,
        target=_target_schema(table.url, spec, existing),
        ids=NO_IDS if existing is None else field_ids(existing),
        app_id=app_id or f"mrflight-{job_id}",
        is_run=app_id is not None,
        job_id=job_id,
        guard=CommitGuard(table.url),
        seen=None if existing is None else SeenTable.of(existing),
    )


def _check(
    metadata: TableMetadata | None, location: Location, spec: OutputSection, url: str
) -> None:
    """Raise OutputError if the job cannot write to the table; None stands for a new one."""
    check_is_folder(location)
    if metadata is not None:
        _check_mode(metadata, spec, url)
    preflight.check_writable(location)


def _check_mode(metadata: TableMetadata, spec: OutputSection, url: str) -> None:
    if spec.mode == "error":
        raise OutputError(
            f"output.table: the Iceberg table {url} exists; choose another table, or set "
            "output.mode to append or overwrite"
        )
    check_writable(metadata, url)
    if spec.mode == "append":
        check_partition_by(metadata, spec.partition_by, url)
