"""The upkeep of a table that a stream appends to: its small files become larger ones.

The stream does it between two commits, so that it conflicts with none of them. What `maintain` does
to a whole table is done here to the files of the last commits.
"""

from __future__ import annotations

from mrflight.ids import new_job_id
from mrflight.sinks.commit.maintenance_report import warn_of_kept
from mrflight.sinks.delta.compaction import compact_bins, plan_compaction
from mrflight.sinks.delta.compaction_plan import Bin
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.vacuum import TABLE_RETENTION, vacuum
from mrflight.storage import Location

TARGET_BYTES = 128 << 20
SMALL_BYTES = 32 << 20
"""Files from this size on are left alone, so that a row is written again only a few times."""

_MAX_BYTES = 512 << 20
"""One upkeep rewrites no more than this, because the next commit waits for it."""


def compact_small_files(location: Location, min_files: int) -> int:
    """Rewrite small files as larger ones, and return how many there were.

    Does nothing to fewer than ``min_files`` files. Raises as `compact` does, with nothing changed.
    """
    table = DeltaTable.load(location)
    if table is None:
        return 0
    table.check_maintainable()
    chosen: list[Bin] = []
    size_bytes = 0
    for each in plan_compaction(table, TARGET_BYTES, SMALL_BYTES):
        if size_bytes + each.size_bytes > _MAX_BYTES and chosen:
            break
        chosen.append(each)
        size_bytes += each.size_bytes
    files = sum(len(each.files) for each in chosen)
    if files < min_files:
        return 0
    compact_bins(table, chosen, new_job_id())
    return files


def remove_old_files(location: Location) -> None:
    """Delete files that the log removed longer ago than the table's retention, 7 days by default.

    Raises OutputError and CommitError as `vacuum` does.
    """
    table = DeltaTable.load(location)
    if table is not None:
        warn_of_kept(location.url, vacuum(table, TABLE_RETENTION).kept)
