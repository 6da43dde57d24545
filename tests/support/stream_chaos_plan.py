"""What is done to a stream while it runs, all of it decided by a seed."""

from __future__ import annotations

import random

import msgspec

RUN_S = 6.0
"""How long events are produced, and things are done to the stream."""

DEEDS = (
    "kill driver",
    "freeze driver",
    "kill worker",
    "freeze worker",
    "kill broker",
    "foreign append",
    "compact",
)


class Deed(msgspec.Struct, frozen=True):
    """Something that is done to a stream."""

    at_s: float
    what: str
    whom: int
    """The number of the ingester, modulo how many there are."""
    for_s: float
    """How long a frozen process sleeps, or what was killed is away."""

    def __str__(self) -> str:
        return f"{self.what} {self.whom} at {self.at_s:.2f} s for {self.for_s:.2f} s"


class ChaosPlan(msgspec.Struct, frozen=True):
    """A run."""

    seed: int
    ingesters: int
    partitions: int
    max_rows: int
    deeds: tuple[Deed, ...]

    def __str__(self) -> str:
        deeds = "; ".join(map(str, self.deeds))
        return (
            f"seed {self.seed}: {self.ingesters} ingesters, {self.partitions} partitions, batches "
            f"of {self.max_rows}: {deeds}"
        )


def plan_chaos(seed: int) -> ChaosPlan:
    """Return the run of a seed."""
    randomly = random.Random(seed)
    deeds = [
        Deed(
            randomly.uniform(1.5, RUN_S),
            what,
            randomly.randrange(2),
            randomly.uniform(0.1, 2.0),
        )
        for what in _choose_deeds(randomly)
    ]
    return ChaosPlan(
        seed,
        randomly.choice((1, 2, 2)),
        randomly.choice((1, 3)),
        randomly.choice((50, 200, 1000)),
        tuple(sorted(deeds, key=lambda each: each.at_s)),
    )


def _choose_deeds(randomly: random.Random) -> list[str]:
    """Return some deeds; a broker is killed once at most, as its restart takes seconds."""
    chosen = randomly.choices(DEEDS, k=randomly.randint(3, 6))
    if "kill broker" not in chosen:
        return chosen
    return [each for each in chosen if each != "kill broker"] + ["kill broker"]
