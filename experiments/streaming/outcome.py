"""What a run of a system has measured: the metrics of section 4.1.5 of the thesis."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

KEPT_POINTS = 100
"""So many of the write times of a run are kept for the scatter plots."""


class Spread(msgspec.Struct, frozen=True):
    """The five numbers of a box plot, and how many values there were."""

    count: int
    low: float
    q1: float
    median: float
    q3: float
    high: float
    """``low`` and ``high`` are the ends of the whiskers: the last values within 1.5 IQR."""
    p99: float

    @property
    def iqr(self) -> float:
        """The interquartile range."""
        return self.q3 - self.q1


class Written(msgspec.Struct, frozen=True):
    """What the program that writes says when it has ended."""

    began: float
    """The time of day at which the clock started, after some writes."""
    ended: float
    events: int
    """The events that were written between the two."""
    total: int
    """All events that were written, also before the clock started."""
    writes: list[tuple[float, float]]
    """When each write began, in seconds after ``began``, and how long it took."""
    reads_s: Spread | None = None
    """How long reading an event from Kafka took."""
    flush_s: float | None = None
    merge_s: float | None = None


class Found(msgspec.Struct, frozen=True):
    """What a fresh reader finds in a table."""

    rows: int
    trips: int
    """The different trips."""
    commits: list[float] = []
    """The times of day at which the table was appended to."""
    location: str = ""


class Files(msgspec.Struct, frozen=True):
    """The files of a table."""

    data: int = 0
    data_bytes: int = 0
    metadata: int = 0
    metadata_bytes: int = 0


class Second(msgspec.Struct, frozen=True):
    """One sample of the machine and of the system's processes."""

    at: float
    """In seconds after the clock started."""
    cpu_percent: float
    """Of all cores of the machine, by whomever, as in the thesis."""
    disk_bytes: float
    """Written to the machine's disks, by whomever, as in the thesis; by second."""
    own_cpu_s: float
    """Core-seconds of the processes of the system: the client and its servers, not Kafka."""
    own_bytes: float
    """Bytes that these processes wrote to files, by second."""


class Outcome(msgspec.Struct, frozen=True):
    """One run, as it is kept."""

    system: str
    batch: int
    round: int
    seconds: float
    events: int
    writes_s: Spread | None
    reads_s: Spread | None
    points: list[tuple[float, float]]
    """Some of the writes: when, and how long, in seconds."""
    samples: list[Second]
    files: Files
    flush_s: float | None
    merge_s: float | None

    @property
    def events_per_s(self) -> float:
        """The throughput of section 4.1.5."""
        return self.events / self.seconds if self.seconds else 0.0


def spread(values: Sequence[float]) -> Spread | None:
    """Return the numbers of a box plot; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    if len(ordered) == 1:
        q1 = median = q3 = ordered[0]
    else:
        q1, median, q3 = statistics.quantiles(ordered, n=4, method="inclusive")
    reach = 1.5 * (q3 - q1)
    low = next(value for value in ordered if value >= q1 - reach)
    high = next(value for value in reversed(ordered) if value <= q3 + reach)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    numbers = (round(value, 9) for value in (low, q1, median, q3, high, p99))
    return Spread(len(ordered), *numbers)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `KEPT_POINTS` of some points, evenly spaced."""
    step = max(1, -(-len(points) // KEPT_POINTS))
    return [(round(at, 4), round(took, 7)) for at, took in points[::step]]
