"""What jobs have recorded in the history of an Iceberg table: their commits, and their offsets.

A commit records both in the summary of its snapshot and, as snapshots expire, in properties of the
table. A summary counts only while its snapshot is in the history of the branch: if the table was
rolled back, the commits after that are undone. A property alone counts once the snapshots that
could tell have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.stream_offsets import RecordedBatch, StreamOffsets

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

JOB = "mrflight.job"
RUN = "mrflight.run"
STREAM = "mrflight.stream."
BATCH = "mrflight.batch"
"""The key, in summaries only, of what a stream has committed in this snapshot."""

Offsets = dict[str, int]
_T = TypeVar("_T")


class RunRecord(msgspec.Struct, frozen=True):
    """The property of a committed run: its snapshot and its job."""

    snapshot: int
    job: str


def run_property(app_id: str) -> str:
    """Return the name of the property that says that a run is committed."""
    return f"{RUN}.{app_id.removeprefix('mrflight/')}"


def stream_key(stream: str) -> str:
    """Return the key of a stream's offsets, in summaries and among the properties."""
    return f"{STREAM}{stream}"


def history(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of the branch, the newest first, as far as they have not expired."""
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)


def is_complete(metadata: TableMetadata) -> bool:
    """Return whether it is known that no snapshot of the branch has expired.

    The first snapshot of a table has the sequence number 1. That it has no parent proves nothing:
    pyiceberg (0.12) removes the parent from a snapshot when that expires. Tables of format version
    1 have no sequence numbers.
    """
    snapshots = list(history(metadata))
    return not snapshots or snapshots[-1].sequence_number == 1


def find_commit(metadata: TableMetadata, app_id: str) -> int | None:
    """Return the snapshot that ``app_id`` has committed; None if there is none.

    A run that was rolled back is not committed, and its snapshot is known until it expires.
    """
    for snapshot in history(metadata):
        if _summary(snapshot).get(RUN) == app_id:
            return snapshot.snapshot_id
    text = metadata.properties.get(run_property(app_id))
    if text is None:
        return None
    record = _decode(text, RunRecord, run_property(app_id))
    was_rolled_back = metadata.snapshot_by_id(record.snapshot) is not None or is_complete(metadata)
    return None if was_rolled_back else record.snapshot


def has_commit_of_job(metadata: TableMetadata, job_id: str) -> int | None:
    """Return the snapshot that a job has committed; None if there is none in the history."""
    found = (s.snapshot_id for s in history(metadata) if _summary(s).get(JOB) == job_id)
    return next(found, None)


def recorded_offsets(metadata: TableMetadata, stream: str, url: str) -> Offsets:
    """Return the next offset of each partition of a stream; empty if it has committed nothing.

    Raises CommitError if the table was rolled back, after which its rows are not those that the
    property tells of.
    """
    key = stream_key(stream)
    at = metadata.properties.get(key)
    property_offsets = {} if at is None else _decode(at, Offsets, key)
    text = next((t for s in history(metadata) if (t := _summary(s).get(key)) is not None), None)
    if text is not None:
        offsets = _decode(text, Offsets, key)
    elif is_complete(metadata):
        offsets = {}
    else:
        return property_offsets
    if offsets != property_offsets:
        raise CommitError(
            f"{url}: the history of the table has the offsets {_shown(offsets)} of stream "
            f"{stream!r}, and its property {key} has {_shown(property_offsets)}: the table was "
            "rolled back, or another program has changed the property. Set the property to the "
            "offsets from which the stream shall go on"
        )
    return offsets


def recorded_batches(metadata: TableMetadata, stream: str) -> Iterator[RecordedBatch | None]:
    """Yield the commits of a stream, the newest first; None at the end if older ones may exist.

    Snapshots that changed no rows of the stream, such as those of a compaction, are none of them.
    """
    for snapshot in history(metadata):
        text = _summary(snapshot).get(BATCH)
        note = {} if text is None else _decode(text, dict[str, Any], BATCH)
        if note.get("stream") == stream:
            yield RecordedBatch(snapshot.snapshot_id, snapshot.timestamp_ms, note)
    if not is_complete(metadata):
        yield None


def is_job_snapshot(snapshot: Snapshot) -> bool:
    """Return whether mrflight has committed a snapshot."""
    return JOB in _summary(snapshot)


def recorded_summaries(metadata: TableMetadata) -> dict[str, str]:
    """Return the offsets of all streams as the history has them, by their keys.

    A snapshot that changes no rows repeats them, so that they are still there when the snapshots
    of the streams have expired.
    """
    found: dict[str, str] = {}
    for snapshot in history(metadata):
        summary = _summary(snapshot)
        found = {**{key: summary[key] for key in summary if key.startswith(STREAM)}, **found}
    return found


def check_recorded(recorded: Mapping[str, int], offsets: StreamOffsets) -> bool:
    """Return whether the recorded offsets are those before a commit of ``offsets``."""
    return all(
        recorded.get(partition) == offsets.before.get(partition) for partition in offsets.after
    )


def next_offsets(recorded: Mapping[str, int], offsets: StreamOffsets) -> Offsets:
    """Return all offsets of the stream after the commit."""
    kept = {name: at for name, at in recorded.items() if name not in offsets.forgotten}
    return {**kept, **offsets.after}


def encode_offsets(offsets: Mapping[str, int]) -> str:
    """Return offsets as the text of a summary or a property."""
    return msgspec.json.encode(dict(sorted(offsets.items()))).decode()


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _shown(offsets: Mapping[str, int]) -> str:
    return encode_offsets(offsets) if offsets else "none"


def _decode(text: str, kind: type[_T], key: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise OutputError(f"the property {key} of the table is damaged: {error}") from error
