"""Plans which snapshots of an Iceberg table expire: pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from mrflight.sinks.iceberg.history import is_job_snapshot

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

MAX_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
MIN_KEPT_PROPERTY = "history.expire.min-snapshots-to-keep"
DEFAULT_MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""By Iceberg's specification."""


class Expiry(msgspec.Struct, frozen=True):
    """How long snapshots are kept."""

    now_ms: int
    max_age_ms: int | None = None
    """None stands for the table's property, or else 5 days."""
    max_own: int | None = None
    """Of our own snapshots no more than this are kept, if they are older than `own_age_ms`."""
    own_age_ms: int = 0


def table_max_age_ms(metadata: TableMetadata) -> int:
    """Return how long the table keeps snapshots."""
    return int(metadata.properties.get(MAX_AGE_PROPERTY, DEFAULT_MAX_AGE_MS))


def expired_snapshots(metadata: TableMetadata, expiry: Expiry) -> list[Snapshot]:
    """Return the snapshots that no branch or tag keeps.

    A branch keeps its newest snapshot, and those that its own settings, or else those of the table,
    say. A tag keeps its snapshot.
    """
    kept: set[int] = set()
    for name, ref in metadata.refs.items():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type.value == "branch":
            kept.update(_kept_by_branch(metadata, name, ref, expiry))
    since = expiry.now_ms - _max_age_ms(metadata, None, expiry)
    return [
        each
        for each in metadata.snapshots
        if each.snapshot_id not in kept and (each.timestamp_ms < since or _is_passed(each, expiry))
    ]


def _kept_by_branch(
    metadata: TableMetadata, name: str, ref: SnapshotRef, expiry: Expiry
) -> Iterator[int]:
    min_kept = ref.min_snapshots_to_keep or int(metadata.properties.get(MIN_KEPT_PROPERTY, 1))
    since = expiry.now_ms - _max_age_ms(metadata, ref, expiry)
    limits_own = name == "main" and expiry.max_own is not None
    for count, snapshot in enumerate(_ancestors(metadata, ref.snapshot_id)):
        is_recent = snapshot.timestamp_ms >= since
        if limits_own and count >= (expiry.max_own or 0) and _is_passed(snapshot, expiry):
            is_recent = False
        if count < min_kept or is_recent:
            yield snapshot.snapshot_id


def _max_age_ms(metadata: TableMetadata, ref: SnapshotRef | None, expiry: Expiry) -> int:
    if ref is not None and ref.max_snapshot_age_ms is not None:
        return int(ref.max_snapshot_age_ms)
    return table_max_age_ms(metadata) if expiry.max_age_ms is None else expiry.max_age_ms


def _is_passed(snapshot: Snapshot, expiry: Expiry) -> bool:
    """Return whether a snapshot is one of ours that is not needed for its age."""
    if expiry.max_own is None or not is_job_snapshot(snapshot):
        return False
    return bool(snapshot.timestamp_ms < expiry.now_ms - expiry.own_age_ms)


def _ancestors(metadata: TableMetadata, newest: int) -> Iterator[Snapshot]:
    snapshot = metadata.snapshot_by_id(newest)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
