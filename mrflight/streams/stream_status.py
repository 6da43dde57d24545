"""How far a stream has come: what its tables have recorded, and what waits in its topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from mrflight.errors import InputError
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.range_reader import read_range
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.delta_stream_table import DeltaStreamTable
from mrflight.streams.recorded_stream import (
    RecordedPartition,
    RecordedStream,
    StreamCommit,
)
from mrflight.streams.stream_job import StreamJob
from mrflight.streams.stream_table import StreamTable
from mrflight.units import format_count, format_duration

_MAX_AGES = 16
"""The partitions, those with the most events waiting, whose oldest event is fetched."""

_AGE_TIMEOUT_S = 5.0


class StreamOffsetsReport(msgspec.Struct, frozen=True):
    """The offsets that the tables of a stream have recorded."""

    stream: str
    table: RecordedStream
    dead_letters: RecordedStream | None
    """None if the stream has no table for them."""

    def summary(self) -> str:
        """Return lines for people."""
        lines = _recorded_lines(self.table)
        if self.dead_letters is not None:
            lines += ["dead letters:", *_recorded_lines(self.dead_letters)]
        return "\n".join(lines)


class PartitionStatus(msgspec.Struct, frozen=True):
    """How far one partition is."""

    topic: str
    partition: int
    next: int | None
    """The next offset that the table has recorded; None if it has none."""
    end: int
    """The end of the topic's committed events."""
    lag: int
    """The offsets between: about as many events wait."""
    oldest_s: float | None = None
    """The age of the oldest event that waits; None if none does, or if it is not known."""


class StreamStatus(msgspec.Struct, frozen=True):
    """How far a stream is."""

    stream: str
    table: str
    version: int | None
    """The version of the last commit of the stream; None if there is none in the log."""
    committed_at: str | None
    lag: int
    oldest_s: float | None
    partitions: tuple[PartitionStatus, ...]

    def summary(self) -> str:
        """Return lines for people."""
        at = "never committed" if self.version is None else f"last commit: version {self.version}"
        when = "" if self.committed_at is None else f" at {self.committed_at}"
        waiting = f"{format_count(self.lag, 'event')} waiting{_age(self.oldest_s)}"
        lines = [f"{self.table}, stream {self.stream!r}", f"{at}{when}; {waiting}"]
        for each in self.partitions:
            known = "nothing recorded" if each.next is None else f"next offset {each.next}"
            lines.append(
                f"{each.topic}/{each.partition}: {known}, end {each.end}, "
                f"{each.lag:,} waiting{_age(each.oldest_s)}"
            )
        return "\n".join(lines)


def read_offsets(job: StreamJob) -> StreamOffsetsReport:
    """Return the recorded offsets; asks no broker. Raises CommitError if a log is unreadable."""
    stream, rejected = job.settings.name, None
    if job.dead_letters is not None:
        found = DeltaStreamTable.open(job.dead_letters)
        rejected = _recorded(found, job.dead_letters.url, stream)
    return StreamOffsetsReport(stream, recorded_of(job), rejected)


def read_status(job: StreamJob) -> StreamStatus:
    """Return how far the stream is.

    Raises BrokerUnavailableError if the brokers are away, InputError if the recorded offsets are
    not those of the topics, and CommitError if the log cannot be read.
    """
    table = job.open_table()
    recorded = _recorded(table, job.url, job.settings.name)
    positions = job.positions()
    known = recorded.by_name
    position = positions.position(known)
    ends = positions.ends()
    found = [
        PartitionStatus(
            *place, known.get(positions.name(place)), end, max(0, end - position[place])
        )
        for place, end in ends.items()
    ]
    ages = _ages(job, found, position)
    partitions = tuple(
        msgspec.structs.replace(each, oldest_s=ages.get((each.topic, each.partition)))
        for each in found
    )
    commit = None if table is None else _last_commit(table, job.settings.name)
    return StreamStatus(
        job.settings.name,
        job.url,
        None if commit is None else commit.version,
        None if commit is None else _time(commit.time_ms),
        sum(each.lag for each in partitions),
        max(ages.values(), default=None),
        partitions,
    )


def recorded_of(job: StreamJob) -> RecordedStream:
    """Return what the table of a stream has recorded; raises as `StreamJob.open_table` does."""
    return _recorded(job.open_table(), job.url, job.settings.name)


def _recorded(table: StreamTable | None, url: str, stream: str) -> RecordedStream:
    return RecordedStream(url, None, ()) if table is None else table.recorded(stream)


def _last_commit(table: StreamTable, stream: str) -> StreamCommit | None:
    return next(table.commits(stream), None)


def _ages(
    job: StreamJob, partitions: Sequence[PartitionStatus], position: Mapping[Partition, int]
) -> dict[Partition, float]:
    """Return the age of the oldest event that waits in each of the partitions with the most."""
    if job.input.kafka is None:
        return {}
    behind = sorted((each for each in partitions if each.lag), key=lambda each: -each.lag)
    now, ages = time.time(), {}
    for each in behind[:_MAX_AGES]:
        place = each.topic, each.partition
        try:
            sent_ms = _first_time(job, OffsetRange(*place, position[place], each.end))
        except InputError:  # it was deleted, which the stream itself will say
            continue
        if sent_ms is not None:
            ages[place] = round(max(0.0, now - sent_ms / 1000), 3)
    return ages


def _first_time(job: StreamJob, range: OffsetRange) -> int | None:
    for messages in read_range(job.client, range, with_headers=False, timeout_s=_AGE_TIMEOUT_S):
        sent_ms: int = messages.timestamps[0].as_py()
        return sent_ms if sent_ms >= 0 else None
    return None


def _recorded_lines(recorded: RecordedStream) -> list[str]:
    version = "" if recorded.version is None else f", version {recorded.version}"
    lines = [f"{recorded.table}{version}", *(_line(each) for each in recorded.partitions)]
    return lines if recorded.partitions else [*lines, "no offsets are recorded"]


def _line(each: RecordedPartition) -> str:
    return f"{each.topic}/{each.partition}: next offset {each.next}"


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def _age(seconds: float | None) -> str:
    return "" if seconds is None else f", the oldest for {format_duration(seconds)}"
