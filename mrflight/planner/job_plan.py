"""The plan of a job: its stages in order, and the plan of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.functions import FunctionRef
from mrflight.config.memory import MemoryPlan
from mrflight.planner.stage_plan import StagePlan, plan_stage
from mrflight.planner.stages import Stage, with_key_prefix
from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.sources.base import Reader, Source, Split

Sources = Mapping[str, Source]
"""The inputs of a stage by name."""


class JobPlan(msgspec.Struct, frozen=True):
    """Everything that is decided before the first task runs."""

    job_id: str
    folder: str
    workers: int
    memory: MemoryPlan
    stages: tuple[Stage, ...]
    """Each stage comes after those that it reads."""
    sources: Mapping[str, Sources]
    """The inputs that are files, by stage."""
    plans: Mapping[str, StagePlan]
    """The plan of each stage. That of a stage that reads others is an estimate until those have
    run: it has no tasks that read them, and its number of partitions follows from the size of their
    inputs."""
    divided: Callable[[], JobPlan] | None = None
    """Plans what runs in its place if a task needs more memory than was expected; None if nothing
    was expected."""

    @property
    def last(self) -> StagePlan:
        """The plan of the stage whose result is the job's."""
        return self.plans[self.stages[-1].name]

    @property
    def runs_directly(self) -> bool:
        """True if nothing is shuffled: the tasks that read the input write the result."""
        return len(self.stages) == 1 and self.last.runs_directly

    @property
    def functions(self) -> set[FunctionRef]:
        """The users' functions that the tasks will call."""
        of_tasks = {function for plan in self.plans.values() for function in plan.functions}
        return of_tasks.union(
            *(stage.fragment.functions for stage in self.stages if stage.fragment is not None)
        )

    @property
    def input_versions(self) -> dict[str, int]:
        """The version that is read of each input that is a Delta table."""
        return {
            stage.name_of_input(name): source.version
            for stage in self.stages
            for name, source in self.sources[stage.name].items()
            if source.version is not None
        }

    @property
    def bad_row_policies(self) -> list[BadRowPolicy]:
        """What is done with bad rows, for each input that skips them."""
        found = (source.bad_rows for of in self.sources.values() for source in of.values())
        return [policy for policy in found if policy is not None]

    def plan_stage(self, stage: Stage, intermediate: Sources) -> StagePlan:
        """Plan a stage; ``intermediate`` are its inputs that are results of other stages.

        Raises JobError as `plan_job`.
        """
        sources = {**self.sources.get(stage.name, {}), **intermediate}
        if stage.fragment is not None:
            sources |= stage.fragment.own_sources
        in_order = [sources[name] for name in stage.spec.inputs]
        return plan_stage(
            stage.spec, in_order, self.folder, self.workers, self.memory, stage.fragment
        )

    def with_sources(self, sources: Mapping[str, Sources]) -> JobPlan:
        """Return the plan of the same job with other sources of the same rows, by stage."""
        return plan_job(self.stages, sources, self.folder, self.job_id, self.workers, self.memory)

    def with_mapped_schemas(self, mapped: Mapping[tuple[str, str], pa.Schema]) -> JobPlan:
        """Return the plan of a job whose functions return such rows, by stage and input.

        It knows the schemas that follow from that, and cannot be run.
        """
        stages, sources = [], {}
        for stage in self.stages:
            schemas = {name: schema for (of, name), schema in mapped.items() if of == stage.name}
            inputs = dict(stage.spec.inputs)
            sources[stage.name] = dict(self.sources[stage.name])
            for name, schema in schemas.items():
                inputs[name] = inputs[name].without_maps()
                source = sources[stage.name][name]
                sources[stage.name][name] = replace(source, reader=_SchemaOnly(schema))
            stages.append(stage._replace(spec=replace(stage.spec, inputs=inputs)))
        return plan_job(stages, sources, self.folder, self.job_id, self.workers, self.memory)


def plan_job(
    stages: Sequence[Stage],
    sources: Mapping[str, Sources],
    folder: str,
    job_id: str,
    workers: int,
    memory: MemoryPlan,
) -> JobPlan:
    """Plan a job; raises JobError for mistakes that can be found before it runs."""
    plans: dict[str, StagePlan] = {}
    plan = JobPlan(job_id, folder, workers, memory, tuple(stages), sources, plans)
    weights: dict[str, int] = {}
    for stage in stages:
        expected = {
            name: _estimate_source(name, plans[section.stage].result_schema, weights[section.stage])
            for name, section in stage.spec.inputs.items()
            if section.stage is not None
        }
        with with_key_prefix(stage):
            plans[stage.name] = plan.plan_stage(stage, expected)
        weights[stage.name] = plans[stage.name].rows_bytes
    return plan


def _estimate_source(name: str, schema: pa.Schema | None, rows_bytes: int) -> Source:
    """Return the result of a stage that has not run, at most as large as its inputs."""
    return Source(name, _SchemaOnly(schema), (), rows_bytes, (), is_intermediate=True)


@dataclass(frozen=True)
class _SchemaOnly(Reader):
    """Stands for a reader in an estimate: it has a schema, and nothing to read."""

    schema: pa.Schema | None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a stage is planned again before it runs")
