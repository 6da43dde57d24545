"""A cluster of Kafka in memory, as a stream asks and reads it: a script says what becomes of it.

It has the methods of `KafkaCluster`, so that the positions of a stream and its kept start are the
real ones, and `read` in the place of consumers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from mrflight.errors import BrokerUnavailableError, InputError, LostOffsetsError
from mrflight.sources.kafka.messages import HEADERS, Messages
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import (
    NO_NOTES,
    Partition,
    PartitionOffsets,
    Topic,
    Topics,
)

TOPIC = "t"

Value = int | dict[str, Any] | bytes | None
"""An event: a number stands for ``{"n": number}``, and None for a message without a value."""

Deed = Callable[[], object] | BaseException
"""What happens at a step: a call, or an error that the step raises."""


class Script:
    """What happens at the steps of a run, by their name and number: ``{"commit 2": ...}``.

    A name alone stands for every step of that name.
    """

    def __init__(self, deeds: Mapping[str, Deed]) -> None:
        self.deeds = dict(deeds)
        self.steps: Counter[str] = Counter()

    def step(self, name: str) -> None:
        """Count a step, and do what is to happen there."""
        self.steps[name] += 1
        for key in (f"{name} {self.steps[name]}", name):
            deed = self.deeds.get(key)
            if isinstance(deed, BaseException):
                raise deed
            if deed is not None:
                deed()


@dataclass
class ScriptedPartition:
    """The messages of a partition by their offsets; an offset without one is a gap."""

    events: dict[int, tuple[int, bytes | None]] = field(default_factory=dict)
    """The time in milliseconds and the value. Messages that were deleted stay here."""
    earliest: int = 0
    end: int = 0
    stable_end: int | None = None
    """The end of what can be read while a transaction is open."""
    gone: set[int] = field(default_factory=set)
    """Offsets whose messages a compaction has removed."""

    @property
    def offsets(self) -> PartitionOffsets:
        return PartitionOffsets(
            self.earliest, self.end if self.stable_end is None else self.stable_end
        )


class ScriptedBroker:
    """A cluster with topics, of which each has an id."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.cluster_id = "cluster"
        self.groups: dict[str, dict[Partition, tuple[int, str]]] = {}
        """The offsets of consumer groups, with their notes."""
        self.partitions: dict[Partition, ScriptedPartition] = {}
        self.ids: dict[str, str] = {}
        self.reads: list[OffsetRange] = []
        self._made = 0

    # What the script does.

    def make(self, topic: str = TOPIC, partitions: int = 1) -> None:
        """Make a topic, or make it anew: its id is another one then."""
        self.delete(topic)
        self.ids[topic] = f"id{self._made}" if self._made else "id"
        self._made += 1
        self.grow(topic, partitions)

    def grow(self, topic: str = TOPIC, partitions: int = 1) -> None:
        """Let a topic have so many partitions."""
        for number in range(partitions):
            self.partitions.setdefault((topic, number), ScriptedPartition())

    def delete(self, topic: str = TOPIC) -> None:
        """Delete a topic."""
        self.ids.pop(topic, None)
        for place in [each for each in self.partitions if each[0] == topic]:
            del self.partitions[place]

    def produce(
        self, *values: Value, partition: int = 0, topic: str = TOPIC, time_ms: int = 1000
    ) -> None:
        """Append events."""
        found = self.partitions[topic, partition]
        for value in values:
            found.events[found.end] = time_ms, as_bytes(value)
            found.end += 1

    def gap(self, count: int, partition: int = 0) -> None:
        """Append offsets without a message, as aborted transactions and markers have them."""
        self.partitions[TOPIC, partition].end += count

    def expire(self, earliest: int, partition: int = 0) -> None:
        """Delete the events below an offset."""
        self.partitions[TOPIC, partition].earliest = earliest

    def lose(self, end: int, partition: int = 0) -> None:
        """Lose the events from an offset on, as an unclean election does."""
        self.partitions[TOPIC, partition].end = end

    def compact(self, *offsets: int, partition: int = 0) -> None:
        """Remove the messages at some offsets."""
        self.partitions[TOPIC, partition].gone.update(offsets)

    def hold(self, at: int | None, partition: int = 0) -> None:
        """Open a transaction at an offset, or end it."""
        self.partitions[TOPIC, partition].stable_end = at

    # What a stream asks: the interface of `KafkaCluster`.

    def topics(self, names: Sequence[str] = (), pattern: str | None = None) -> Topics:
        self.script.step("topics")
        if pattern is not None:
            names = [each for each in self.ids if re.fullmatch(pattern, each)]
        for name in names:
            if name not in self.ids:
                raise InputError(f"inputs.events.topic: the cluster has no topic {name!r}")
        found = (Topic(each, self.ids[each], self._numbers(each)) for each in sorted(set(names)))
        return Topics(self.cluster_id, tuple(found))

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionOffsets]:
        self.script.step("offsets")
        return {each: self._partition(each).offsets for each in partitions}

    def offsets_at(self, partitions: Iterable[Partition], time: datetime) -> dict[Partition, int]:
        self.script.step("offsets at")
        wanted_ms = round(time.timestamp() * 1000)
        return {each: self._at(self.partitions[each], wanted_ms) for each in partitions}

    def publish(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        notes: Mapping[Partition, str] = NO_NOTES,
    ) -> None:
        self.script.step("publish")
        of_group = self.groups.setdefault(group, {})
        of_group |= {each: (at, notes.get(each, "")) for each, at in offsets.items()}

    def begin_publishing(self, group: str, offsets: Mapping[Partition, int]) -> Future[None]:
        answer: Future[None] = Future()
        try:
            self.publish(group, offsets)
            answer.set_result(None)
        except Exception as error:  # the caller finds it in the answer
            answer.set_exception(error)
        return answer

    def published(
        self, group: str, partitions: Iterable[Partition]
    ) -> dict[Partition, tuple[int, str]]:
        self.script.step("published")
        known = self.groups.get(group, {})
        return {each: known[each] for each in partitions if each in known}

    # What a batch reads.

    def read(self, range: OffsetRange) -> Messages:
        """Return the messages of a range, as `read_range` yields them piece by piece."""
        self.reads.append(range)
        found = self._partition((range.topic, range.partition))
        if range.count and range.start < found.earliest:
            raise LostOffsetsError(
                "inputs.events: deleted", range.topic, range.partition, range.start, found.earliest
            )
        there = [
            each
            for each in sorted(found.events)
            if range.start <= each < range.stop and each not in found.gone
        ]
        times, values = (
            zip(*(found.events[each] for each in there), strict=True) if there else ((), ())
        )
        return Messages(
            range.topic,
            range.partition,
            pa.array(there, pa.int64()),
            pa.array(times, pa.int64()),
            pa.nulls(len(there), pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(len(there), HEADERS),
        )

    def _partition(self, place: Partition) -> ScriptedPartition:
        """Return a partition; a topic that was deleted is away for what asks for its offsets."""
        if place not in self.partitions:
            raise BrokerUnavailableError(f"inputs.events: no leader of {place}")
        return self.partitions[place]

    def _numbers(self, topic: str) -> tuple[int, ...]:
        return tuple(sorted(number for name, number in self.partitions if name == topic))

    def _at(self, partition: ScriptedPartition, wanted_ms: int) -> int:
        later = [at for at, (sent_ms, _) in partition.events.items() if sent_ms >= wanted_ms]
        return min(later, default=partition.offsets.latest)


def as_bytes(value: Value) -> bytes | None:
    """Return the payload of an event."""
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps({"n": value} if isinstance(value, int) else value).encode()
