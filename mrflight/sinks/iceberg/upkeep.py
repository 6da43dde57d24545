"""The upkeep of an Iceberg table that a stream appends to, between two of its commits."""

from __future__ import annotations

import time

from mrflight.ids import new_job_id
from mrflight.sinks.commit.maintenance_report import warn_of_kept
from mrflight.sinks.iceberg.compaction import compact_bins, plan_compaction
from mrflight.sinks.iceberg.compaction_plan import Bin
from mrflight.sinks.iceberg.expiry import Expired, expire
from mrflight.sinks.iceberg.expiry_plan import Expiry
from mrflight.sinks.iceberg.table import TableInCatalog

TARGET_BYTES = 128 << 20
SMALL_BYTES = 32 << 20
"""Files from this size on are left alone, so that a row is written again only a few times."""

MAX_SNAPSHOTS = 1_000
"""Each commit writes a file that lists all snapshots, so that many of them make commits slow."""

MIN_AGE_MS = 3600 * 1000
"""Snapshots of the last hour are always kept, for readers that have begun."""

_MAX_BYTES = 512 << 20
"""One upkeep rewrites no more than this, because the next commit waits for it."""


def compact_small_files(table: TableInCatalog, min_files: int) -> int:
    """Rewrite small files as larger ones, and return how many there were.

    Does nothing to fewer than ``min_files`` files. Raises as `plan_compaction` and `compact_bins`
    do, with nothing changed.
    """
    handle = table.load()
    if handle is None:
        return 0
    chosen: list[Bin] = []
    size_bytes = 0
    for each in plan_compaction(handle, table.url, TARGET_BYTES, SMALL_BYTES):
        if size_bytes + each.size_bytes > _MAX_BYTES and chosen:
            break
        chosen.append(each)
        size_bytes += each.size_bytes
    if sum(len(each.files) for each in chosen) < min_files:
        return 0
    done = compact_bins(table, handle, chosen, new_job_id())
    return 0 if done is None else sum(len(each.bin.files) for each in done.rewritten)


def remove_old_files(table: TableInCatalog) -> Expired:
    """Expire snapshots by the table's properties, and delete the files that only they needed.

    Of our own snapshots no more than `MAX_SNAPSHOTS` are kept. Raises as `expire` does.
    """
    now_ms = time.time_ns() // 1_000_000
    expired = expire(table, Expiry(now_ms, max_own=MAX_SNAPSHOTS, own_age_ms=MIN_AGE_MS))
    warn_of_kept(table.url, expired.kept)
    return expired
