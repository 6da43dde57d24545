"""The maintenance of a Delta table: compaction, vacuum and a checkpoint of its log."""

from __future__ import annotations

from functools import partial

import msgspec

from mrflight.errors import OutputError
from mrflight.ids import new_job_id
from mrflight.sinks.commit.maintenance_report import (
    CompactionReport,
    MaintenanceReport,
    VacuumReport,
)
from mrflight.sinks.delta.compaction import compact, plan_compaction
from mrflight.sinks.delta.synced_log import write_checkpoint
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.vacuum import TABLE_RETENTION, Retention, find_removed_files, vacuum
from mrflight.storage import Location
from mrflight.storage.delta import delta_errors, why_unreachable
from mrflight.system.signals import run_interruptibly

TARGET_BYTES = 128 << 20


class MaintenanceOptions(msgspec.Struct, frozen=True):
    """The steps of the maintenance."""

    target_bytes: int | None = TARGET_BYTES
    """The size of compacted files; None for no compaction."""
    retention: Retention | None = TABLE_RETENTION
    """How long a vacuum keeps removed files; None for no vacuum."""
    checkpoints: bool = True
    """Whether a checkpoint is written."""
    data_path: Location | None = None
    """The folder of an Iceberg table's data files outside of its own location, if files are to be
    deleted there as well."""


def maintain(
    location: Location, options: MaintenanceOptions, *, dry_run: bool = False
) -> MaintenanceReport:
    """Maintain the table, and report what was done; in a dry run only report what would be done.

    The vacuum comes before the checkpoint, which forgets the oldest of the removed files. Raises
    OutputError if there is no Delta table, or one that deltalake cannot maintain, and CommitError
    if the store fails or other writers were faster each time.
    """
    table = _load(location)
    table.check_maintainable()
    compaction = removed = None
    if options.retention is not None:  # before anything is written, as it may refuse
        removed = find_removed_files(table, options.retention)
    if options.target_bytes is not None:
        compaction = _compact(table, options.target_bytes, dry_run)
    if options.retention is not None and not dry_run:
        removed = vacuum(_load(location), options.retention)
    table = _load(location)
    if options.checkpoints and not dry_run:
        with delta_errors(f"{location.url} got no checkpoint"):
            run_interruptibly(partial(write_checkpoint, location, table.handle))
    return MaintenanceReport(
        table=location.url,
        dry_run=dry_run,
        version=table.version,
        compaction=compaction,
        vacuum=None if removed is None else VacuumReport(len(removed.files), removed.size_bytes),
        checkpoint=table.version if options.checkpoints else None,
        kept=() if removed is None else removed.kept,
    )


def _load(location: Location) -> DeltaTable:
    if (why := why_unreachable(location)) is not None:
        raise OutputError(f"{location.url}: {why}")
    table = DeltaTable.load(location)
    if table is None:
        raise OutputError(
            f"{location.url} is not a Delta table; name the folder that is output.table of a job"
        )
    return table


def _compact(table: DeltaTable, target_bytes: int, dry_run: bool) -> CompactionReport:
    if dry_run:
        bins = plan_compaction(table, target_bytes)
        into_files, into_bytes = len(bins), None
    else:
        compacted = compact(table, target_bytes, new_job_id())
        bins = () if compacted is None else compacted.bins
        parts = () if compacted is None else compacted.parts
        into_files, into_bytes = len(parts), sum(part.size_bytes for part in parts)
    return CompactionReport(
        files=sum(len(bin.files) for bin in bins),
        size_bytes=sum(bin.size_bytes for bin in bins),
        into_files=into_files,
        into_bytes=into_bytes,
    )
