"""Analyzes a job before it runs: opens its inputs and its output, and plans its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from mrflight.config.memory import MemoryPlan
from mrflight.config.spec import InputSpec, JobSpec
from mrflight.errors import JobFileError
from mrflight.planner.job_plan import JobPlan, plan_job
from mrflight.planner.stage_plan import SPLIT_BYTES
from mrflight.planner.stages import Stage, build_stages, result_stages, with_key_prefix
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from mrflight.sources import open_source
from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.sources.base import Source
from mrflight.storage import locate


def analyze(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> tuple[JobPlan, Sink]:
    """Open the inputs and the output, and plan the job. Raises JobError."""
    if not spec.has_output:
        raise JobFileError("output.table must not be empty; write a path or a URL")
    plan = plan_inputs(spec, folder, job_id, workers, memory)
    run_id = spec.job.run_id
    app_id = f"mrflight/{spec.job.name}/{run_id}" if run_id is not None else None
    for stage in plan.stages:
        with with_key_prefix(stage):
            _check_output_apart(spec, stage.spec, folder, plan.sources[stage.name])
    sink = open_sink(spec.output, folder, spec.storage, job_id, app_id)
    if not sink.was_committed() and (schema := plan.last.result_schema) is not None:
        sink.check_rows(schema)
    return plan, sink


def plan_inputs(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> JobPlan:
    """Open the inputs and plan the job, without a look at the output."""
    return _plan_stages(build_stages(spec), folder, job_id, workers, memory)


def plan_result(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> JobPlan:
    """Open the inputs and plan a job whose rows the caller reads. Raises JobError."""
    plan = _plan_stages(result_stages(spec), folder, job_id, workers, memory)
    _ = plan.last.result_schema  # which raises for wrong columns of the result
    return plan


def _plan_stages(
    stages: Sequence[Stage], folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> JobPlan:
    sources = {stage.name: _open_inputs(stage, folder) for stage in stages}
    return plan_job(stages, sources, str(folder), job_id, workers, memory)


def _open_inputs(stage: Stage, folder: Path) -> dict[str, Source]:
    """Open the inputs of a stage that are not the results of others."""
    with with_key_prefix(stage):
        return {
            name: _open_input(stage, name, section, folder)
            for name, section in stage.spec.inputs.items()
            if section.stage is None
        }


def _open_input(stage: Stage, name: str, section: InputSpec, folder: Path) -> Source:
    source = open_source(name, section, folder, stage.spec.storage, SPLIT_BYTES)
    if section.bad_rows == "fail":
        return source
    return replace(source, bad_rows=BadRowPolicy(stage.name_of_input(name)))


def _check_output_apart(
    spec: JobSpec, stage: JobSpec, folder: Path, sources: Mapping[str, Source]
) -> None:
    """Raise JobFileError if the next run would read files of this run's output.

    A table may be input and output as a whole: it is read before it is written.
    """
    output = locate(spec.output.table, folder, spec.storage)
    for source in (each for each in sources.values() if stage.inputs[each.name].paths):
        key = f"inputs.{source.name}.path"
        roots = [locate(path, folder, spec.storage) for path in stage.inputs[source.name].paths]
        if any(root.is_same(output) for root in roots):
            continue
        for root in roots:
            if output.lies_in(root):
                raise JobFileError(
                    f"output.table: {output.url} lies in {root.url}, which {key} reads; the next "
                    "run would read the output as input: choose another folder"
                )
        inside = [file for file in map(roots[0].at, source.files) if file.lies_in(output)]
        if inside:
            raise JobFileError(
                f"output.table: {inside[0].url}, which {key} reads, lies in {output.url}; inputs "
                "and results would be mixed there: choose another folder"
            )
