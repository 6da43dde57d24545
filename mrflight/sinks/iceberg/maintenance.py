"""The maintenance of an Iceberg table: compaction, and the expiry of its snapshots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from mrflight.errors import OutputError
from mrflight.ids import new_job_id
from mrflight.sinks.commit.maintenance_report import (
    CompactionReport,
    MaintenanceReport,
    VacuumReport,
)
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.delta.vacuum import Retention
from mrflight.sinks.iceberg.compaction import compact_bins, plan_compaction
from mrflight.sinks.iceberg.compaction_plan import Bin
from mrflight.sinks.iceberg.expiry import Expired, expire
from mrflight.sinks.iceberg.expiry_plan import MAX_AGE_PROPERTY, Expiry, table_max_age_ms
from mrflight.sinks.iceberg.own_files import own_files
from mrflight.sinks.iceberg.own_location import why_nothing_goes
from mrflight.sinks.iceberg.table import TableInCatalog

if TYPE_CHECKING:
    from pyiceberg.table import Table


def maintain(
    table: TableInCatalog, options: MaintenanceOptions, *, dry_run: bool = False
) -> MaintenanceReport:
    """Maintain the table, and report what was done; in a dry run only report what would be done.

    Raises OutputError if there is no table, or one that mrflight cannot rewrite, or for a retention
    that is shorter than that of the table; CommitError if the catalog or the store fails.
    """
    handle = _load(table)
    expiry = None
    why_kept = why_nothing_goes(handle.metadata)
    if options.retention is not None and why_kept is None:  # before all else, as it may refuse
        expiry = _expiry(handle, options.retention, table.url)
        own_files(table, handle, options.data_path)
    compaction, expired = None, Expired()
    if options.target_bytes is not None:
        compaction = _compact(table, handle, options.target_bytes, dry_run)
    if expiry is not None:
        expired = expire(table, expiry, options.data_path, dry_run=dry_run)
    note = ""
    if options.retention is not None and why_kept is not None:
        note = f"no snapshot expires and no file is deleted: {why_kept}"
    return MaintenanceReport(
        table=table.url,
        dry_run=dry_run,
        version=_load(table).metadata.current_snapshot_id or 0,
        compaction=compaction,
        vacuum=None if expiry is None else VacuumReport(expired.files, expired.size_bytes),
        checkpoint=None,
        expired=None if expiry is None else expired.snapshots,
        kept=expired.kept,
        note=note,
    )


def _load(table: TableInCatalog) -> Table:
    handle = table.load()
    if handle is None:
        raise OutputError(f"there is no table {table.url}; correct the name or --catalog")
    return handle


def _expiry(handle: Table, retention: Retention, url: str) -> Expiry:
    now_ms = time.time_ns() // 1_000_000
    if retention.time is None:
        return Expiry(now_ms)
    max_age_ms = retention.time // timedelta(milliseconds=1)
    if max_age_ms < table_max_age_ms(handle.metadata) and not retention.is_forced:
        raise OutputError(
            f"{url} keeps snapshots for longer than that ({MAX_AGE_PROPERTY}, 5 days if it is not "
            "set), and readers of older snapshots would miss their files; use a longer --retain, "
            "or add --force"
        )
    return Expiry(now_ms, max_age_ms)


def _compact(
    table: TableInCatalog, handle: Table, target_bytes: int, dry_run: bool
) -> CompactionReport:
    planned = plan_compaction(handle, table.url, target_bytes, target_bytes)
    if dry_run:
        return _report(planned, len(planned), None)
    done = compact_bins(table, handle, planned, new_job_id())
    rewritten = () if done is None else done.rewritten
    parts = [part for each in rewritten for part in each.parts]
    sizes = sum(part.size_bytes for part in parts)
    return _report([each.bin for each in rewritten], len(parts), sizes)


def _report(bins: Sequence[Bin], into_files: int, into_bytes: int | None) -> CompactionReport:
    return CompactionReport(
        files=sum(len(each.files) for each in bins),
        size_bytes=sum(each.size_bytes for each in bins),
        into_files=into_files,
        into_bytes=into_bytes,
    )
