"""A range of offsets of one partition, and the split that reads it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mrflight.sources.base import Split

_SCHEME = "kafka://"


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets from ``start`` to ``stop``, without ``stop``, of a partition of a topic."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """The number of offsets, which may be more than that of messages."""
        return self.stop - self.start


_MIN_EVENTS = 20_000
"""Fewer events are read by one task: a second one costs some milliseconds."""


def divide_evenly(ranges: Sequence[OffsetRange], parts: int) -> list[list[OffsetRange]]:
    """Return at most so many groups of ranges, with about as many offsets each.

    A range that spans two groups is cut, so that each group has neighbouring offsets.
    """
    total = sum(each.count for each in ranges)
    parts = max(1, min(parts, total // _MIN_EVENTS))
    groups: list[list[OffsetRange]] = [[] for _ in range(parts)]
    before = 0
    for each in ranges:
        for number, group in enumerate(groups):
            start = max(each.start, each.start + number * total // parts - before)
            stop = min(each.stop, each.start + (number + 1) * total // parts - before)
            if start < stop:
                group.append(OffsetRange(each.topic, each.partition, start, stop))
        before += each.count
    return groups


def partition_path(topic: str, partition: int) -> str:
    """Return what messages and splits call a partition: ``kafka://trips/3``."""
    return f"{_SCHEME}{topic}/{partition}"


def split_of(range: OffsetRange, message_bytes: int) -> Split:
    """Return the split that reads a range of messages of about so many bytes each."""
    path = partition_path(range.topic, range.partition)
    return Split(path, range.start, range.stop, range.count * message_bytes)


def range_of(split: Split) -> OffsetRange:
    """Return the range that a split reads."""
    topic, _, partition = split.path.removeprefix(_SCHEME).rpartition("/")
    return OffsetRange(topic, int(partition), split.start, split.stop)
