"""Marks the offsets that the rows of a table have, to find those that are doubled or missing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.sources.kafka.topic_offsets import Partition

Bounds = Mapping[Partition, tuple[int, int]]
"""The first offset of each partition, and the one after its last."""

Ranges = dict[Partition, list[tuple[int, int]]]
"""Some ranges of offsets of each partition."""

MAX_EXAMPLES = 5


class Strays(msgspec.Struct, frozen=True):
    """Offsets that should not be there: how many, and some of them."""

    count: int
    examples: tuple[tuple[str, int, int], ...]
    """Topic, partition and offset."""


class FirstOffsets:
    """Finds the first offset of each partition among rows."""

    def __init__(self) -> None:
        self.found: dict[Partition, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at the rows of a batch."""
        for place, offsets in by_partition(batch).items():
            first = int(offsets.min())
            self.found[place] = min(first, self.found.get(place, first))


class OffsetPresence:
    """Which offsets of a window are there, in one byte each."""

    def __init__(self, window: Bounds) -> None:
        self._window = window
        self._seen = {
            place: np.zeros(stop - start, bool) for place, (start, stop) in window.items()
        }
        self._twice = _Examples()

    def add(self, batch: pa.RecordBatch) -> None:
        """Mark the rows of a batch whose columns are ``_topic``, ``_partition``, ``_offset``."""
        for place, offsets in by_partition(batch).items():
            if place not in self._seen:
                continue
            start, stop = self._window[place]
            inside = np.sort(offsets[(offsets >= start) & (offsets < stop)] - start)
            seen = self._seen[place]
            again = np.zeros(len(inside), bool)
            again[1:] = inside[1:] == inside[:-1]
            self._twice.add(place, inside[again | seen[inside]] + start)
            seen[inside] = True

    @property
    def twice(self) -> Strays:
        """The offsets that have more than one row."""
        return self._twice.strays()

    def explain(self, batch: pa.RecordBatch) -> int:
        """Take offsets that have no row for being there; return how many these were."""
        count = 0
        for place, offsets in by_partition(batch).items():
            if place not in self._seen:
                continue
            start, stop = self._window[place]
            inside = np.unique(offsets[(offsets >= start) & (offsets < stop)] - start)
            seen = self._seen[place]
            count += int(np.count_nonzero(~seen[inside]))
            seen[inside] = True
        return count

    def missing(self) -> Ranges:
        """Return the ranges of offsets that have no row."""
        return {
            place: [(start + low, start + high) for low, high in _runs(~self._seen[place])]
            for place, (start, _) in self._window.items()
        }


class OffsetsOutside:
    """Counts the rows whose offsets are not among those that the table has recorded."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._found = _Examples()

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at the rows of a batch."""
        for place, offsets in by_partition(batch).items():
            start, stop = self._bounds.get(place, (0, 0))
            self._found.add(place, offsets[(offsets < start) | (offsets >= stop)])

    @property
    def strays(self) -> Strays:
        """The offsets that are not recorded."""
        return self._found.strays()


def windows(bounds: Bounds, size: int) -> list[dict[Partition, tuple[int, int]]]:
    """Divide the offsets into windows of at most ``size`` offsets together."""
    found: list[dict[Partition, tuple[int, int]]] = [{}]
    room = size
    for place, (start, stop) in bounds.items():
        while start < stop:
            if not room:
                found.append({})
                room = size
            taken = min(room, stop - start)
            found[-1][place] = (start, start + taken)
            start += taken
            room -= taken
    return found


def by_partition(
    batch: pa.RecordBatch,
) -> dict[Partition, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the offsets of each partition in a batch; rows without a place are left out."""
    batch = batch.filter(pc.is_valid(batch.column("_offset")))
    topics = batch.column("_topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    numbers = batch.column("_partition").to_numpy(zero_copy_only=False)
    offsets = batch.column("_offset").to_numpy(zero_copy_only=False)
    found = {}
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        for number in np.unique(numbers[codes == code]):
            chosen = (codes == code) & (numbers == number)
            found[topic, int(number)] = offsets[chosen]
    return found


def _runs(is_true: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Return the runs of true values, by their first place and the one after their last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_true, [False]])))
    return [(int(low), int(high)) for low, high in edges.reshape(-1, 2)]


class _Examples:
    def __init__(self) -> None:
        self._count = 0
        self._examples: list[tuple[str, int, int]] = []

    def add(self, place: Partition, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        self._count += len(offsets)
        room = MAX_EXAMPLES - len(self._examples)
        self._examples += [(*place, int(each)) for each in offsets[:room]]

    def strays(self) -> Strays:
        return Strays(self._count, tuple(self._examples))
