"""What a job reads and writes, looked at and found possible before anything is moved."""

from __future__ import annotations

from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.memory import MemoryPlan
from mrflight.plan import SPLIT_BYTES, JobPlan, plan_job
from mrflight.sinks import open_sink
from mrflight.sinks.base import Sink
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.spec import JobSpec
from mrflight.storage import locate


def open_job(
    spec: JobSpec, folder: Path, job_id: str, workers: int, memory: MemoryPlan
) -> tuple[JobPlan, Sink]:
    """Look at the inputs and the output, and decide what is done. Raises JobError."""
    options = spec.storage
    sources = [
        open_source(name, section, folder, options, SPLIT_BYTES)
        for name, section in spec.inputs.items()
    ]
    plan = plan_job(spec, sources, str(folder), job_id, workers, memory)
    run_id = spec.job.run_id
    app_id = f"mrflight/{spec.job.name}/{run_id}" if run_id is not None else None
    _check_output_apart(spec, folder, sources)
    sink = open_sink(spec.output, folder, options, job_id, app_id)
    if not sink.was_committed():
        _check_rows(spec, sources, plan, sink)
    return plan, sink


def _check_rows(spec: JobSpec, sources: list[Source], plan: JobPlan, sink: Sink) -> None:
    """Raise JobError where the sink does not take what is made of inputs that are not mapped."""
    for source in sources:
        if spec.inputs[source.name].map is None:
            schema = plan.reduction.result_schema(source.reader.schema)
            if schema is not None:
                sink.check_rows(schema)


def _check_output_apart(spec: JobSpec, folder: Path, sources: list[Source]) -> None:
    """Raise JobFileError where a rerun might read what this run writes as part of its input.

    A table that is input and output as a whole is no such case: it is read before it is written.
    """
    output = locate(spec.output.table, folder, spec.storage).path
    for source in sources:
        given = locate(spec.inputs[source.name].path, folder, spec.storage).path
        if given == output:
            continue
        if output.startswith(f"{given}/"):
            raise JobFileError(
                f"output.table: {output} lies in what inputs.{source.name}.path reads, {given}; "
                "the next run would read its files as input: choose another folder"
            )
        inside = [file for file in source.files if file.startswith(f"{output}/")]
        if inside:
            raise JobFileError(
                f"output.table: {inside[0]}, which inputs.{source.name}.path reads, lies in "
                f"{output}; inputs and results would be mixed there: choose another folder"
            )
