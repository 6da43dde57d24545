"""What a Delta table has recorded of a stream: its next offsets, and the commits in its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mrflight.sinks.delta.recorded_offsets import RecordedOffsets
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location


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
    """The version of a Delta table; None if there is no table, or its format has no versions."""
    partitions: tuple[RecordedPartition, ...]
    """By topic and number; none if the table knows nothing of the stream."""

    @property
    def by_name(self) -> dict[str, int]:
        """The next offsets by the names that partitions have in tables."""
        return {each.name: each.next for each in self.partitions}


class StreamCommit(msgspec.Struct, frozen=True):
    """A commit of a stream, as the log of its table has it."""

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


def read_recorded(location: Location, stream: str) -> tuple[RecordedStream, DeltaTable | None]:
    """Return what the newest version of a table has recorded of a stream, and the table.

    Raises CommitError if the log cannot be read, and StreamRestoredError.
    """
    table = DeltaTable.load(location)
    if table is None:
        return RecordedStream(location.url, None, ()), None
    offsets = RecordedOffsets(stream).at(table)
    partitions = tuple(sorted(parse_name(*each) for each in offsets.items()))
    return RecordedStream(location.url, table.version, partitions), table


def newest_commits(table: DeltaTable, stream: str) -> Iterator[StreamCommit | None]:
    """Yield the commits of a stream, the newest first.

    The last one is None if older entries of the log were cleaned away.
    """
    for version in range(table.version, -1, -1):
        actions = table.actions(version)
        if actions is None:
            yield None
            return
        for action in actions:
            commit = _commit(version, action.get("commitInfo", {}), stream)
            if commit is not None:
                yield commit


def _commit(version: int, info: Mapping[str, Any], stream: str) -> StreamCommit | None:
    text = info.get("mrflightStream")
    if text is None:
        return None
    note = json.loads(text)
    if note.get("stream") != stream:
        return None
    return StreamCommit(
        version,
        int(info.get("timestamp", 0)),
        {name: (before, after) for name, (before, after) in note["offsets"].items()},
        note.get("starts", {}),
        {
            place: [(start, stop) for start, stop in ranges]
            for place, ranges in note.get("replayed", {}).items()
        },
    )
