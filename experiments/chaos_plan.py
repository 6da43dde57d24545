"""Derive the faults of a run of the soak, their victims and their moments from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

Cluster = Literal["embedded", "standing"]
Victim = Literal["worker", "data", "metadata", "driver", "forks"]
"""``forks`` is the fork server: the driver's servers and workers are forked from it."""
Fault = Literal["kill", "pause", "freeze", "cut", "cut off"]
"""``pause`` is SIGSTOP and later SIGCONT. ``freeze`` is SIGSTOP without an end. ``cut`` resets
every connection once. ``cut off`` also refuses new connections for a while."""
Stage = Literal["map", "reduce", "commit"]

VICTIMS: tuple[Victim, ...] = ("worker", "data", "metadata", "driver", "forks")
KINDS: tuple[Fault, ...] = ("kill", "pause", "freeze", "cut", "cut off")

FAULTS: dict[Cluster, dict[Victim, tuple[Fault, ...]]] = {
    "embedded": {
        "worker": ("kill", "pause", "freeze"),
        "data": ("kill", "pause", "freeze"),
        "metadata": ("kill", "pause", "freeze"),
        "driver": ("kill", "pause"),
        "forks": ("kill", "pause", "freeze"),
    },
    "standing": {
        "worker": ("kill",),
        "data": ("kill", "pause", "freeze", "cut", "cut off"),
        "metadata": ("kill", "pause", "cut", "cut off"),
        "driver": ("kill",),
        "forks": ("kill",),
    },
}
"""Only a standing cluster has proxies in front of its servers, so only its connections are cut. Its
metadata server is restarted after a kill, as an operator would do."""

MAX_PAUSE_S = 5.0
_AFTER_STAGE_S = {"map": 0.3, "reduce": 0.2, "commit": 0.05}
"""The latest time of a fault after the first sign of a stage."""
_BEFORE: dict[Stage, Stage] = {"commit": "reduce", "reduce": "map"}
_AT_ONCE_S = 0.01
"""Below this, half the time makes no difference: a commit takes very little time."""


@dataclass(frozen=True)
class Moment:
    """A moment: some seconds after a stage began, or a fraction of the time without faults."""

    stage: Stage | None
    after_s: float = 0.0
    share: float = 0.0

    @property
    def description(self) -> str:
        return f"{self.stage} + {self.after_s:.3f} s" if self.stage else f"at {self.share:.0%}"


@dataclass(frozen=True)
class Strike:
    """One fault. ``number`` selects one of the possible victims."""

    victim: Victim
    fault: Fault
    moment: Moment
    number: int
    pause_s: float
    """The length of a pause or a cut, or the time until a killed metadata server is restarted."""

    @property
    def description(self) -> str:
        return f"{self.fault} {self.victim} {self.moment.description}"

    @property
    def lasts_s(self) -> float:
        """The time for which the fault keeps the job from making progress."""
        return self.pause_s if self.fault in ("pause", "cut off") else 0.0

    @property
    def may_end_the_job(self) -> bool:
        """True if the job may end with the fault, as with its driver. It survives all other faults.

        If the job ends, a second run must commit.
        """
        return self.victim == "driver" and self.fault == "kill"


@dataclass(frozen=True)
class Scenario:
    """One run of the soak."""

    seed: int
    cluster: Cluster
    data_servers: int
    replicas: int
    strikes: tuple[Strike, ...]

    @property
    def lasts_s(self) -> float:
        return sum(strike.lasts_s for strike in self.strikes)

    @property
    def may_fail(self) -> bool:
        return any(strike.may_end_the_job for strike in self.strikes)

    @property
    def description(self) -> str:
        strikes = "; ".join(strike.description for strike in self.strikes)
        return (
            f"{self.cluster}, {self.data_servers} data servers, replicas {self.replicas}: {strikes}"
        )


def plan(
    seed: int,
    victims: tuple[Victim, ...] = VICTIMS,
    faults: tuple[Fault, ...] = KINDS,
    strikes: int = 1,
    clusters: tuple[Cluster, ...] = ("embedded", "standing"),
) -> Scenario:
    """Return the scenario of a seed: some random faults on random victims."""
    chance = random.Random(seed)
    cluster = chance.choice(clusters)
    data_servers = chance.randint(2, 4)
    replicas = chance.randint(1, 2)
    possible = [
        (victim, fault)
        for victim in victims
        for fault in FAULTS[cluster][victim]
        if fault in faults
    ]
    made = tuple(_strike(chance, *chance.choice(possible)) for _ in range(strikes))
    return Scenario(seed, cluster, data_servers, replicas, made)


def with_earlier_faults(scenario: Scenario) -> Scenario:
    """Return the scenario with its faults in half the time, for a job that ended before them."""

    def earlier(moment: Moment) -> Moment:
        if moment.stage == "commit" or (moment.stage == "reduce" and moment.after_s < _AT_ONCE_S):
            return replace(moment, stage=_BEFORE[moment.stage])
        return replace(moment, after_s=moment.after_s / 2, share=moment.share / 2)

    strikes = [replace(strike, moment=earlier(strike.moment)) for strike in scenario.strikes]
    return replace(scenario, strikes=tuple(strikes))


def _strike(chance: random.Random, victim: Victim, fault: Fault) -> Strike:
    pause_s = chance.uniform(1.0, MAX_PAUSE_S)
    return Strike(victim, fault, _moment(chance), chance.randrange(24), pause_s)


def _moment(chance: random.Random) -> Moment:
    if chance.random() < 0.5:
        return Moment(None, share=chance.random())
    stage: Stage = chance.choice(("map", "reduce", "commit"))
    return Moment(stage, after_s=chance.uniform(0.0, _AFTER_STAGE_S[stage]))
