"""How long attempts took: exact times, or, of very many, how many took about as long."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable

_PER_OCTAVE = 4
"""Buckets for each doubling: the middle of one is at most a tenth away from what is in it."""
_SHORTEST_MS = 1e-3
_ENOUGH = 5_000
"""The median of so many times is near that of all."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a time: see `AttemptsBinned.durations`."""
    return math.floor(_PER_OCTAVE * math.log2(max(seconds * 1000, _SHORTEST_MS)))


def middle_of(bucket: int) -> float:
    """Return the time in the middle of a bucket, in seconds."""
    return float(2 ** ((bucket + 0.5) / _PER_OCTAVE) / 1000)


class Durations:
    """Times of attempts."""

    def __init__(self) -> None:
        self._exact = array("d")
        self._buckets: Counter[int] = Counter()
        self._known = (0, 0.0)
        """The last median, and of how many times it was."""
        self.longest = 0.0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._exact.append(seconds)
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def add_buckets(self, buckets: Iterable[tuple[int, int]], total: float, longest: float) -> None:
        """Add times of which the buckets, the sum and the longest are known."""
        self._buckets.update(dict(buckets))
        self.total += total
        self.longest = max(self.longest, longest)

    def add_all(self, others: Durations) -> None:
        """Add the times of ``others``."""
        self._exact.extend(others._exact)
        self.add_buckets(others._buckets.items(), others.total, others.longest)

    def __len__(self) -> int:
        return len(self._exact) + self._buckets.total()

    def nearly_median(self) -> float:
        """Return the median of some of the times, in a tenth of the time if there are very many."""
        step = len(self._exact) // _ENOUGH + 1
        if self._buckets or step == 1:
            return self.median()
        some = sorted(self._exact[::step])
        return some[len(some) // 2]

    def median(self) -> float:
        """Return the median, exactly unless there are buckets; 0 without times."""
        if self._known[0] != len(self):
            self._known = len(self), self._median()
        return self._known[1]

    def _median(self) -> float:
        if not self._buckets:  # in a tenth of the time
            ordered = sorted(self._exact)
            middle = len(ordered) // 2
            return (ordered[middle] + ordered[~middle]) / 2 if ordered else 0.0
        counts = [(seconds, 1) for seconds in self._exact]
        counts += [(middle_of(bucket), count) for bucket, count in self._buckets.items()]
        counts.sort()
        size = len(self)
        return (_at(counts, (size - 1) // 2) + _at(counts, size // 2)) / 2


def _at(counts: list[tuple[float, int]], position: int) -> float:
    """Return what is at a position of the ordered times."""
    for seconds, count in counts:
        position -= count
        if position < 0:
            return seconds
    raise AssertionError("the position is below the sum of the counts")
