"""What is decided of a whole job: its stages in their order, and the plan of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from mrflight.config.functions import FunctionRef
from mrflight.config.memory import MemoryPlan
from mrflight.planner.stage_plan import StagePlan, plan_stage
from mrflight.planner.stages import Stage, with_key_prefix
from mrflight.sources.base import Reader, Source, Split

Sources = Mapping[str, Source]
"""Inputs by their names in a stage."""


class JobPlan(msgspec.Struct, frozen=True):
    """Everything that is decided before the first task runs."""

    job_id: str
    folder: str
    workers: int
    memory: MemoryPlan
    stages: tuple[Stage, ...]
    """Each behind those that it reads."""
    sources: Mapping[str, Sources]
    """Of each stage the inputs that are files."""
    plans: Mapping[str, StagePlan]
    """Of each stage. Of one that reads others as far as it can be known before those have run:
    without tasks for what they make, and with a number of partitions by what they read."""

    @property
    def last(self) -> StagePlan:
        """Of the stage whose result is the job's."""
        return self.plans[self.stages[-1].name]

    @property
    def functions(self) -> set[FunctionRef]:
        """The users' functions that the tasks will call."""
        return {function for plan in self.plans.values() for function in plan.functions}

    @property
    def input_versions(self) -> dict[str, int]:
        """Of each input that is a Delta table the version that is read."""
        return {
            f"{stage}.{name}" if stage else name: source.version
            for stage, sources in self.sources.items()
            for name, source in sources.items()
            if source.version is not None
        }

    def plan_stage(self, stage: Stage, made: Sources) -> StagePlan:
        """A stage whose inputs that are results of stages are ``made``; JobError as `plan_job`."""
        sources = {**self.sources.get(stage.name, {}), **made}
        in_order = [sources[name] for name in stage.spec.inputs]
        return plan_stage(stage.spec, in_order, self.folder, self.workers, self.memory)


def plan_job(
    stages: Sequence[Stage],
    sources: Mapping[str, Sources],
    folder: str,
    job_id: str,
    workers: int,
    memory: MemoryPlan,
) -> JobPlan:
    """The plan of a job; raises JobError for what can be seen to be wrong before it runs."""
    plans: dict[str, StagePlan] = {}
    plan = JobPlan(job_id, folder, workers, memory, tuple(stages), sources, plans)
    weights: dict[str, int] = {}
    for stage in stages:
        expected = {
            name: _expected(name, plans[section.stage].result_schema, weights[section.stage])
            for name, section in stage.spec.inputs.items()
            if section.stage is not None
        }
        with with_key_prefix(stage):
            plans[stage.name] = plan.plan_stage(stage, expected)
        weights[stage.name] = plans[stage.name].rows_bytes
    return plan


def _expected(name: str, schema: pa.Schema | None, rows_bytes: int) -> Source:
    """The result of a stage that has not run, at most as large as what it reads."""
    return Source(name, _Unmade(schema), (), rows_bytes, (), is_made=True)


@dataclass(frozen=True)
class _Unmade(Reader):
    schema: pa.Schema | None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a plan is made anew before its stage runs")
