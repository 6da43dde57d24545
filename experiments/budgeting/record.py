"""The budget of one job, as it is kept in budget.json."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from experiments.budgeting.profile import Profile
from experiments.budgeting.stages import Stage
from experiments.budgeting.work import Floor
from experiments.timed_process import Timed

_FRAMES = 5
"""The functions that are kept for each stage."""


class Runs(msgspec.Struct, frozen=True):
    """The seconds of each round."""

    wall_s: list[float]
    cpu_s: list[float]
    """The processor time that the system reports, without that of the sampler."""
    sampler_s: list[float]


class Budget(msgspec.Struct, frozen=True):
    """The core-seconds of a job by stage, means of its rounds, and their floors."""

    name: str
    title: str
    cores: int
    alone: Runs
    """The runs without the sampler."""
    sampled: Runs
    stages: dict[Stage, float]
    roles: dict[str, dict[Stage, float]]
    """The same by the role of the process."""
    functions: dict[Stage, dict[str, float]]
    """The functions, or threads, in which most of a stage is spent."""
    floors: dict[Stage, Floor]

    @property
    def cpu_s(self) -> float:
        return statistics.mean(self.sampled.cpu_s)

    @property
    def wait_s(self) -> float:
        """What the cores did not do while the job ran without the sampler."""
        return self.cores * statistics.mean(self.alone.wall_s) - statistics.mean(self.alone.cpu_s)

    def spent_s(self, stage: Stage) -> float:
        """Return what a stage takes, with the stages that its floor includes."""
        floor = self.floors.get(stage)
        return sum(self.stages[each] for each in (stage, *(floor.includes if floor else ())))

    def floor_s(self, stage: Stage) -> float:
        """Return the floor of a stage; 0 if it has none."""
        floor = self.floors.get(stage)
        return 0.0 if floor is None else floor.seconds

    def included_in(self, stage: Stage) -> Stage | None:
        """Return the stage whose floor includes that of this one, if there is one."""
        return next((each for each, floor in self.floors.items() if stage in floor.includes), None)

    @property
    def above_s(self) -> dict[Stage, float]:
        """What each stage takes more than its floor, or less; stages that are included are not."""
        return {
            stage: self.spent_s(stage) - self.floor_s(stage)
            for stage in Stage
            if self.included_in(stage) is None
        }

    @property
    def at_floors_s(self) -> float:
        """What the job would take with each stage at its floor, or where it is if that is less."""
        return self.cpu_s - sum(max(0.0, above) for above in self.above_s.values())


def budget_of(
    name: str,
    title: str,
    alone: Sequence[Timed],
    sampled: Sequence[Profile],
    floors: Mapping[Stage, Floor],
    cores: int,
) -> Budget:
    """Return the means of all rounds."""
    rounds = len(sampled)
    stages = {stage: statistics.mean(run.stages[stage] for run in sampled) for stage in Stage}
    roles: dict[str, dict[Stage, float]] = {}
    functions = {stage: Counter[str]() for stage in Stage}
    for run in sampled:
        for (role, stage), seconds in run.seconds.items():
            of_role = roles.setdefault(role, {})
            of_role[stage] = of_role.get(stage, 0.0) + seconds / rounds
        for (stage, function), seconds in run.functions.items():
            functions[stage][function] += seconds / rounds
    return Budget(
        name,
        title,
        cores,
        Runs([run.wall_s for run in alone], [run.cpu_s for run in alone], []),
        Runs(
            [run.wall_s for run in sampled],
            [run.cpu_s for run in sampled],
            [run.sampler_s for run in sampled],
        ),
        stages,
        roles,
        {stage: dict(found.most_common(_FRAMES)) for stage, found in functions.items()},
        dict(floors),
    )
