"""Analyzes a job before it runs: opens its inputs and its output, and plans its stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

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
from mrflight.storage import Location, locate


def analyze(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> tuple[JobPlan, Sink]:
    """Open the inputs and the output, and plan the job. Raises JobError."""
    if not spec.has_output:
        raise JobFileError("output.table must not be empty; write a path or a URL")
    plan = plan_inputs(spec, folder, job_id, workers, memory)
    run_id = spec.job.run_id
    app_id = f"mrflight/{spec.job.name}/{run_id}" if run_id is not None else None
    output = locate(spec.output.table, folder, spec.storage)
    _check_apart(_Written("output.table", output, may_be_input=True), folder, plan)
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
    plan = plan_job(stages, sources, str(folder), job_id, workers, memory)
    _check_bad_rows_apart(stages[-1].spec, folder, plan)
    return plan


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
    path = section.bad_rows_folder
    written = None if path is None else locate(path, folder, stage.spec.storage)
    return replace(source, bad_rows=BadRowPolicy(stage.name_of_input(name), written))


class _Written(NamedTuple):
    """A folder to which the job writes, and the key that names it."""

    key: str
    location: Location
    may_be_input: bool = False
    """True if an input may be the same folder: a table is read before it is written."""


def _check_bad_rows_apart(spec: JobSpec, folder: Path, plan: JobPlan) -> None:
    """Raise JobFileError if a folder of bad rows would be mixed with the inputs or the output."""
    for stage in plan.stages:
        for name, source in plan.sources[stage.name].items():
            if source.bad_rows is None or source.bad_rows.folder is None:
                continue
            written = _Written(f"{stage.section}inputs.{name}.bad_rows", source.bad_rows.folder)
            _check_apart(written, folder, plan)
            if not spec.has_output:
                continue
            output = locate(spec.output.table, folder, spec.storage)
            bad = written.location
            if bad.is_same(output) or bad.lies_in(output) or output.lies_in(bad):
                raise JobFileError(
                    f"{written.key}: {bad.url} and output.table, {output.url}, must not lie in one "
                    "another; choose another folder"
                )


def _check_apart(written: _Written, folder: Path, plan: JobPlan) -> None:
    """Raise JobFileError if the next run would read files that this run writes."""
    for stage in plan.stages:
        for name, source in plan.sources[stage.name].items():
            paths = stage.spec.inputs[name].paths
            roots = [locate(path, folder, stage.spec.storage) for path in paths]
            if roots:
                key = f"{stage.section}inputs.{name}.path"
                _check_apart_from(written, key, roots, source.files)


def _check_apart_from(
    written: _Written, key: str, roots: Sequence[Location], files: Iterable[str]
) -> None:
    location = written.location
    if written.may_be_input and any(root.is_same(location) for root in roots):
        return
    for root in roots:
        if location.is_same(root) or location.lies_in(root):
            what = "the output" if written.may_be_input else "bad rows"
            raise JobFileError(
                f"{written.key}: {location.url} lies in {root.url}, which {key} reads; the next "
                f"run would read {what} as input: choose another folder"
            )
    inside = [file for file in map(roots[0].at, files) if file.lies_in(location)]
    if inside:
        raise JobFileError(
            f"{written.key}: {inside[0].url}, which {key} reads, lies in {location.url}; inputs "
            "and results would be mixed there: choose another folder"
        )
