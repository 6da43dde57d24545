"""What is done to a stream while it runs, all of it decided by a seed."""

from __future__ import annotations

import random

import msgspec

RUN_S = 5.0
"""How long events are produced, and things are done to the stream, once that has begun."""

BROKER, BROKERS, CATALOG, STORE = "kill broker", "kill brokers", "kill catalog", "kill store"
SERVERS = (BROKER, BROKERS, CATALOG, STORE)
"""Deeds whose victims are shared by other runs, unless a run has them for itself."""

PROCESSES = (
    "kill driver",
    "freeze driver",
    "kill worker",
    "freeze worker",
    "kill data server",
    "freeze data server",
)
WRITERS = ("foreign append", "compact")


class Place(msgspec.Struct, frozen=True):
    """Where the table of a run is."""

    format: str
    catalog: str
    """The kind of the catalog; empty for Delta, which has none."""
    store: str

    def __str__(self) -> str:
        return "/".join(filter(None, (self.format, self.catalog, self.store)))


PLACES = (
    Place("delta", "", "disk"),
    Place("iceberg", "sqlite", "disk"),
    Place("ducklake", "postgres", "disk"),
    Place("delta", "", "s3"),
    Place("iceberg", "postgres", "s3"),
    Place("ducklake", "sqlite", "disk"),
    Place("iceberg", "rest", "disk"),
    Place("ducklake", "postgres", "s3"),
    Place("iceberg", "postgres", "disk"),
    Place("delta", "", "s3"),
    Place("ducklake", "sqlite", "s3"),
    Place("iceberg", "sqlite", "s3"),
)
"""By the seed modulo their number, so that a range of seeds has all of them. A catalog of DuckLake
in a file of DuckDB is left out, because only one process may have it open."""


class Deed(msgspec.Struct, frozen=True):
    """Something that is done to a stream."""

    at_s: float
    what: str
    whom: int
    """The number of the ingester, or of the server, modulo how many there are."""
    for_s: float
    """How long a frozen process sleeps, or what was killed is away."""

    def __str__(self) -> str:
        return f"{self.what} {self.whom} at {self.at_s:.2f} s for {self.for_s:.2f} s"


class ChaosPlan(msgspec.Struct, frozen=True):
    """A run. It has two ingesters of one stream."""

    seed: int
    place: Place
    partitions: int
    max_rows: int
    workers: int
    shuffles: bool
    """Whether the rows of a batch go through the data servers."""
    waits: bool
    """Whether nothing is done before the first commit, which creates the table."""
    survivor: int | None
    """The ingester that has to go on alone in the end, when the other one is killed."""
    deeds: tuple[Deed, ...]

    @property
    def kills(self) -> frozenset[str]:
        """The deeds that are done to servers, which the run must have for itself."""
        return frozenset(deed.what for deed in self.deeds) & frozenset(SERVERS)

    def __str__(self) -> str:
        deeds = "; ".join(map(str, self.deeds))
        how = "with a shuffle" if self.shuffles else "without a shuffle"
        end = "" if self.survivor is None else f", {self.survivor} goes on alone"
        when = "from the first commit on" if self.waits else "from the start"
        return (
            f"seed {self.seed}: {self.place}, {self.partitions} partitions, batches of "
            f"{self.max_rows} {how} by {self.workers} workers, {when}: {deeds}{end}"
        )


def plan_chaos(seed: int) -> ChaosPlan:
    """Return the run of a seed."""
    randomly, place = random.Random(seed), PLACES[seed % len(PLACES)]
    shuffles = randomly.random() < 0.4
    deeds = [
        Deed(randomly.uniform(0.2, RUN_S), what, randomly.randrange(3), randomly.uniform(0.1, 2.0))
        for what in _choose_deeds(randomly, place, shuffles)
    ]
    return ChaosPlan(
        seed,
        place,
        randomly.choice((1, 3)),
        randomly.choice((100, 200, 500)),
        randomly.choice((1, 1, 2)),
        shuffles,
        randomly.random() < 0.7,
        randomly.choice((None, 0, 1)),
        tuple(sorted(deeds, key=lambda each: each.at_s)),
    )


def _choose_deeds(randomly: random.Random, place: Place, shuffles: bool) -> list[str]:
    """Return some deeds. A server is killed once at most, as its restart takes seconds.

    Most runs kill no server, so that they can share those that run.
    """
    processes = [each for each in PROCESSES if shuffles or "data server" not in each]
    writers = [each for each in WRITERS if place.format == "delta" or each != "compact"]
    chosen = randomly.choices([*processes, *writers], k=randomly.randint(3, 6))
    if randomly.random() < 0.6:
        return chosen
    servers = [randomly.choice((BROKER, BROKER, BROKERS))]
    servers += [CATALOG] if place.catalog in ("postgres", "rest") else []
    servers += [STORE] if place.store == "s3" else []
    return chosen[:4] + randomly.sample(servers, k=min(len(servers), randomly.choice((1, 1, 2))))
