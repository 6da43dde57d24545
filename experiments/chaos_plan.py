"""What is done to whom and when in one run of the soak: a function of the run's seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

Cluster = Literal["embedded", "standing"]
Victim = Literal["worker", "data", "metadata", "driver", "forks"]
"""``forks`` is the process that the driver's servers and workers are forked from."""
Fault = Literal["kill", "pause", "freeze", "cut", "cut off"]
"""``pause`` is SIGSTOP and, after a while, SIGCONT; ``freeze`` is SIGSTOP for good; ``cut`` resets
every connection once, ``cut off`` refuses new ones for a while as well."""
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
metadata server is started again after a kill, as whoever runs one would."""

MAX_PAUSE_S = 5.0
_AFTER_STAGE_S = {"map": 0.3, "reduce": 0.2, "commit": 0.05}
"""How long after a stage's first sign a fault comes at the latest."""
_BEFORE: dict[Stage, Stage] = {"commit": "reduce", "reduce": "map"}
_AT_ONCE_S = 0.01
"""Half of that would be no sooner; and a commit is over in no time."""


@dataclass(frozen=True)
class Moment:
    """So many seconds after a stage was first told of, or a share of an undisturbed run."""

    stage: Stage | None
    after_s: float = 0.0
    share: float = 0.0

    @property
    def told(self) -> str:
        return f"{self.stage} + {self.after_s:.3f} s" if self.stage else f"at {self.share:.0%}"


@dataclass(frozen=True)
class Strike:
    """One fault; ``number`` chooses among those that could be hit."""

    victim: Victim
    fault: Fault
    moment: Moment
    number: int
    pause_s: float
    """The length of a pause or a cut, or the time until a killed metadata server is restarted."""

    @property
    def told(self) -> str:
        return f"{self.fault} {self.victim} {self.moment.told}"

    @property
    def lasts_s(self) -> float:
        """How long nothing may go on for its sake."""
        return self.pause_s if self.fault in ("pause", "cut off") else 0.0

    @property
    def may_end_the_job(self) -> bool:
        """Whether the job may end with it, as it does with its driver; all others are survived.

        Then a second run has to commit.
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
    def told(self) -> str:
        strikes = "; ".join(strike.told for strike in self.strikes)
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
    """What the run of ``seed`` is: so many ``strikes``, each some fault on some victim."""
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


def sooner(scenario: Scenario) -> Scenario:
    """The same with faults that come in half the time, for a run that ended before they did."""

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
