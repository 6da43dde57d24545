"""Cuts the next batch of a stream from what its partitions have: pure functions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import Partition


class BatchLimits(msgspec.Struct, frozen=True):
    """When a batch is full."""

    rows: int
    bytes: int

    def events(self, event_bytes: float) -> int:
        """Return how many events of this size a batch has at most, at least one."""
        return max(1, min(self.rows, int(self.bytes / max(event_bytes, 1.0))))


def waiting(position: Mapping[Partition, int], ends: Mapping[Partition, int]) -> int:
    """Return how many offsets there are between the position and the ends."""
    return sum(max(0, end - position[partition]) for partition, end in ends.items())


def cut_batch(
    position: Mapping[Partition, int], ends: Mapping[Partition, int], max_events: int
) -> tuple[OffsetRange, ...]:
    """Return a range of each partition that has events, of ``max_events`` offsets together.

    Partitions with few events give all of them, and the others share what is left evenly, so that
    none of them waits for another. The ranges are ordered by topic and partition.
    """
    left = {each: ends[each] - position[each] for each in ends if ends[each] > position[each]}
    taken: dict[Partition, int] = {}
    room = max_events
    for number, partition in enumerate(sorted(left, key=lambda each: (left[each], each))):
        share = max(1, room // (len(left) - number)) if room else 0
        taken[partition] = min(left[partition], share)
        room -= min(taken[partition], room)
    return tuple(
        OffsetRange(
            topic, number, position[topic, number], position[topic, number] + taken[topic, number]
        )
        for topic, number in sorted(taken)
        if taken[topic, number]
    )


def after(
    position: Mapping[Partition, int], ranges: tuple[OffsetRange, ...]
) -> dict[Partition, int]:
    """Return the position once these ranges have been read."""
    return {**position, **{(each.topic, each.partition): each.stop for each in ranges}}
