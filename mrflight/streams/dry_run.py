"""``mrflight ingest --dry-run``: decodes the first events that a stream would read, and no more."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.range_reader import read_range
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.event_decoder import EventDecoder
from mrflight.streams.stream_job import StreamJob
from mrflight.streams.stream_status import recorded_of
from mrflight.units import format_count

EVENTS = 10
"""The events that are decoded of each partition."""

_MAX_TEXT = 100


class Column(msgspec.Struct, frozen=True):
    """A column of the events."""

    name: str
    type: str


class Reject(msgspec.Struct, frozen=True):
    """An event that cannot be decoded."""

    topic: str
    partition: int
    offset: int
    reason: str
    text: str
    """The beginning of its value."""


class TriedPartition(msgspec.Struct, frozen=True):
    """The first events of a partition."""

    topic: str
    partition: int
    start: int
    """Where the stream would go on."""
    end: int
    read: int
    decoded: int


class DryRun(msgspec.Struct, frozen=True):
    """What a stream would read."""

    stream: str
    table: str
    columns: tuple[Column, ...]
    """Those of the events, before maps and sql."""
    partitions: tuple[TriedPartition, ...]
    rejects: tuple[Reject, ...]

    def summary(self) -> str:
        """Return lines for people."""
        lines = [f"{self.table}, stream {self.stream!r}", "columns of the events:"]
        width = max((len(each.name) for each in self.columns), default=0)
        lines += [f"  {each.name:{width}}  {each.type}" for each in self.columns]
        for each in self.partitions:
            waiting = format_count(max(0, each.end - each.start), "offset")
            lines.append(
                f"{each.topic}/{each.partition}: from offset {each.start} to {each.end} "
                f"({waiting}); {each.decoded} of {format_count(each.read, 'event')} decoded"
            )
        for reject in self.rejects:
            lines.append(
                f"rejected: {reject.topic}/{reject.partition}, offset {reject.offset}: "
                f"{reject.reason}: {reject.text}"
            )
        lines.append("nothing was written (--dry-run)")
        return "\n".join(lines)


def dry_run(job: StreamJob, events: int = EVENTS) -> DryRun:
    """Decode the first events of each partition from where the stream would go on.

    Writes nothing, and starts no processes. Raises what the stream itself would raise before its
    first batch: JobFileError, InputError, LostOffsetsError and BrokerUnavailableError.
    """
    job.check_is_topic()
    recorded = recorded_of(job)
    positions = job.positions()
    position = positions.check_kept(
        positions.position(recorded.by_name), takes_earliest=job.settings.takes_earliest
    )
    ends = positions.ends()
    found = {each: _first(job, each, position[each], ends[each], events) for each in ends}
    read = [messages for pieces in found.values() for messages in pieces]
    decoder = EventDecoder.of(job, lambda: read)
    rejects: list[Reject] = []
    partitions = []
    for place, pieces in found.items():
        count = decoded = 0
        for messages in pieces:
            result = decoder.decode(messages)
            count += len(messages)
            decoded += len(messages) - len(result.rejected)
            rejects += [
                Reject(each.topic, each.partition, each.offset, each.reason, each.text[:_MAX_TEXT])
                for each in result.rejected
            ]
        partitions.append(TriedPartition(*place, position[place], ends[place], count, decoded))
    columns = tuple(Column(field.name, str(field.type)) for field in decoder.schema)
    return DryRun(job.settings.name, job.url, columns, tuple(partitions), tuple(rejects))


def _first(job: StreamJob, place: Partition, start: int, end: int, events: int) -> list[Messages]:
    """Return so many messages of a partition, or fewer if it has no more."""
    return list(_up_to(job, OffsetRange(*place, start, end), events))


def _up_to(job: StreamJob, range: OffsetRange, events: int) -> Iterator[Messages]:
    left = events
    with_headers = job.input.metadata
    for messages in read_range(job.client, range, with_headers):
        yield messages.slice(0, min(left, len(messages)))
        left -= len(messages)
        if left <= 0:
            return
