"""What a table has recorded of a stream: its next offsets, and the commits in its history."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mrflight.sinks.commit.stream_offsets import RecordedBatch
from mrflight.sources.recorded_names import without_marks


class RecordedPartition(msgspec.Struct, frozen=True, order=True):
    """The next offset of a partition that a table has recorded."""

    topic: str
    partition: int
    next: int
    cluster: str
    topic_id: str

    @property
    def name(self) -> str:
        """The name under which the table records it."""
        return f"{self.cluster}/{self.topic}/{self.topic_id}/{self.partition}"


class RecordedStream(msgspec.Struct, frozen=True):
    """The offsets of a stream in one table."""

    table: str
    version: int | None
    """The version, or the snapshot, of the table; None if there is no table."""
    partitions: tuple[RecordedPartition, ...]
    """By topic and number; none if the table knows nothing of the stream."""

    @property
    def by_name(self) -> dict[str, int]:
        """The next offsets by the names that partitions have in tables."""
        return {each.name: each.next for each in self.partitions}


class StreamCommit(msgspec.Struct, frozen=True):
    """A commit of a stream, as the history of its table has it."""

    version: int
    time_ms: int
    offsets: Mapping[str, tuple[int | None, int]]
    """The next offset before the commit, if there was one, and after it, by partition."""
    starts: Mapping[str, int]
    """Where the batch began, where that is not the next offset before."""
    replayed: Mapping[str, list[tuple[int, int]]]
    """The dead letters that it has replayed: ranges of offsets by ``topic/partition``."""


def parse_name(name: str, next: int) -> RecordedPartition:
    """Return the partition that a table records under a name."""
    cluster, topic, topic_id, number = name.split("/")
    return RecordedPartition(topic, int(number), next, cluster, topic_id)


def to_commit(batch: RecordedBatch) -> StreamCommit:
    """Return the commit that the history of a table tells of."""
    note = batch.note
    return StreamCommit(
        batch.version,
        batch.time_ms,
        {name: (before, after) for name, (before, after) in without_marks(note["offsets"]).items()},
        note.get("starts", {}),
        {
            place: [(start, stop) for start, stop in ranges]
            for place, ranges in note.get("replayed", {}).items()
        },
    )
