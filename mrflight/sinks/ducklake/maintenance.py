"""The maintenance of a table of a DuckLake: compaction, and the expiry of the lake's snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.maintenance_report import (
    CompactionReport,
    MaintenanceReport,
    VacuumReport,
)
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.delta.vacuum import Retention
from mrflight.sinks.ducklake.compaction import (
    LakeCompaction,
    SmallFiles,
    compact,
    data_files,
    small_files,
)
from mrflight.sinks.ducklake.expiry import LakeExpiry, expire, shortest_retention_s
from mrflight.storage.ducklake.address import parse_address
from mrflight.storage.ducklake.lake import Lake
from mrflight.storage.ducklake.process import LakeError
from mrflight.storage.ducklake.table import (
    TableName,
    find_table,
    newest_snapshot,
    parse_table_name,
)

_ALL_OR_NONE = (
    "DuckLake deletes all replaced files or none, so that it was not asked to; take the kept ones "
    "out of its table ducklake_files_scheduled_for_deletion"
)


class _Seen(NamedTuple):
    """The table at one moment."""

    snapshot: int
    files: dict[int, int]
    """The sizes of its data files, by their ids."""
    small: SmallFiles


def maintain(
    table: str,
    url: str,
    storage: Mapping[str, str],
    options: MaintenanceOptions,
    *,
    dry_run: bool = False,
) -> MaintenanceReport:
    """Maintain the table, and report what was done; in a dry run only report what would be done.

    Raises JobFileError for a wrong URL or name, OutputError if there is no table, or for a
    retention that is shorter than that of the lake, and CommitError if the catalog fails.
    """
    address = parse_address(url, Path.cwd(), "--catalog ducklake:")
    name = parse_table_name(table, "TABLE")
    lake = Lake(address, storage)
    shown = f"{name} in {lake.url}"
    target_bytes = options.target_bytes
    before = _look(lake, name, shown, target_bytes or 0)
    expiry = None
    if options.retention is not None:  # before anything is written, as it may refuse
        expiry = _expiry(lake, options.retention, dry_run)
    compaction = None
    if target_bytes is not None:
        compaction = _compact(lake, name, shown, target_bytes, None if dry_run else before)
    done = None if expiry is None else expire(lake, expiry)
    return MaintenanceReport(
        table=shown,
        dry_run=dry_run,
        version=_look(lake, name, shown, 0).snapshot,
        compaction=compaction,
        vacuum=None if done is None else VacuumReport(done.files, None),
        checkpoint=None,
        expired=None if done is None else done.snapshots,
        kept=() if done is None else done.kept,
        note="" if done is None or not done.kept else _ALL_OR_NONE,
    )


def _compact(
    lake: Lake, name: TableName, shown: str, target_bytes: int, before: _Seen | None
) -> CompactionReport:
    """Compact the table as it was ``before``; None stands for a dry run."""
    if before is None:
        small = _look(lake, name, shown, target_bytes).small
        return CompactionReport(small.files, small.size_bytes, small.partitions, None)
    done = compact(lake, shown, LakeCompaction(name, target_bytes, rewrites_deletes=True))
    if done is None or not done.files:
        return CompactionReport(0, 0, 0, 0)
    after = _look(lake, name, shown, target_bytes)
    removed = [size for number, size in before.files.items() if number not in after.files]
    added = [size for number, size in after.files.items() if number not in before.files]
    return CompactionReport(done.files, sum(removed), done.into_files, sum(added))


def _look(lake: Lake, name: TableName, shown: str, smaller_than: int) -> _Seen:
    missing = f"there is no table {shown}; correct the name or --catalog"
    if not lake.may_exist:
        raise OutputError(missing)
    try:
        with lake.session() as session:
            newest = newest_snapshot(session)
            table = find_table(session, name, newest)
            if table is None:
                raise OutputError(missing)
            small = small_files(session, table, smaller_than)
            return _Seen(newest, data_files(session, table), small)
    except LakeError as error:
        if error.is_missing:
            raise OutputError(missing) from None
        raise CommitError(f"{shown} cannot be read: {error}") from error


def _expiry(lake: Lake, retention: Retention, dry_run: bool) -> LakeExpiry:
    if retention.time is None:
        return LakeExpiry(dry_run=dry_run)
    seconds = retention.time.total_seconds()
    if seconds < shortest_retention_s(lake) and not retention.is_forced:
        raise OutputError(
            f"the DuckLake at {lake.url} keeps replaced files for longer than that (its option "
            "delete_older_than, 7 days if it is not set), and readers that have begun would miss "
            "them; use a longer --retain, or add --force"
        )
    return LakeExpiry(seconds, dry_run)
