"""Explains how a job would run, as labelled values: analyzes it, and starts nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from mrflight.config.functions import check_function
from mrflight.config.output_section import OutputSection
from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.ids import new_job_id
from mrflight.planner.analyze import analyze, plan_inputs
from mrflight.planner.explain_input import Line
from mrflight.planner.explain_stage import StageExplanation
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.stages import Stage
from mrflight.sinks import output_url
from mrflight.storage.option_checks import prepare_storage
from mrflight.system.deadlines import Deadline
from mrflight.units import format_bytes, format_count

_LABEL_WIDTH = 15
_OWN = "the job's own"

_ON_THIS_MACHINE = "as on this machine; Ray decides by all of its nodes"


def explain(spec: JobSpec, folder: Path) -> list[str]:
    """Return the lines of the explanation; ``folder`` is that of the job file.

    Nothing is started or written, but users' modules are imported in this process. Raises the
    errors that the job would raise before its first task. The output is looked at if there is one.
    """
    prepare_storage(spec, folder)
    settings = RunSettings.of(spec, folder)
    deadline = Deadline(time.monotonic() + settings.timeout_s)
    call = partial(_explain, spec, folder, settings)
    return deadline.run(call, "the inputs and the output were analyzed")


def _explain(spec: JobSpec, folder: Path, settings: RunSettings) -> list[str]:
    job = (spec, folder, new_job_id(), settings.workers, settings.memory)
    if not spec.has_output:
        plan = plan_inputs(*job)
        _ = plan.last.result_schema  # which raises for wrong columns of the result
        _check_functions(plan)
        return format_plan(spec, plan, settings)
    plan, sink = analyze(*job)
    _check_functions(plan)
    url = output_url(spec.output, folder, spec.storage)
    output = labelled(_output(spec.output, url))
    if sink.was_committed():
        output += labelled([("  committed", f"run {spec.job.run_id!r}; there is nothing to do")])
    return [*format_plan(spec, plan, settings), *output]


def _check_functions(plan: JobPlan) -> None:
    for function in sorted(plan.functions, key=str):
        check_function(function)


def format_plan(spec: JobSpec, plan: JobPlan, settings: RunSettings) -> list[str]:
    """Return what is read, shuffled and reduced, stage by stage, and the memory for it."""
    lines = labelled(_job(spec, plan, settings))
    titles = {stage.name: stage.title for stage in plan.stages}
    for stage in plan.stages:
        explanation = StageExplanation(
            stage, plan.plans[stage.name], plan.sources[stage.name], titles
        )
        heading = _heading(stage, titles) if len(plan.stages) > 1 else []
        lines += ["", *labelled([*heading, *explanation.lines()])]
    return [*lines, "", *labelled(_memory(spec, plan, settings))]


def _job(spec: JobSpec, plan: JobPlan, settings: RunSettings) -> Iterator[Line]:
    cluster = spec.cluster
    by_ray = cluster.executor == "ray" and cluster.ray_address is not None
    yield "job", f"{spec.job.name}, {format_count(len(plan.stages), 'stage')}"
    if cluster.executor == "ray":
        yield "ray", cluster.ray_address or "started and ended by the job"
    if spec.has_output and plan.runs_directly:
        yield "workers", "1, for one map and one partition"
        yield "data servers", "none: nothing is shuffled"
        return
    reason = f" ({_ON_THIS_MACHINE})" if by_ray and cluster.workers is None else ""
    yield "workers", f"{settings.workers:,}{reason}"
    if cluster.metadata is not None:
        yield "data servers", f"those of {cluster.metadata}"
    else:
        yield "data servers", f"{settings.data_servers:,}"


def _heading(stage: Stage, titles: Mapping[str, str]) -> list[Line]:
    lines = [("stage", stage.title or _OWN)]
    if stage.reads:
        read = " and ".join(titles[name] or _OWN for name in sorted(stage.reads))
        lines.append(("  estimated", f"planned again after {read}"))
    return lines


def _memory(spec: JobSpec, plan: JobPlan, settings: RunSettings) -> Iterator[Line]:
    has_both = any(stage.reads for stage in plan.stages)
    is_direct = spec.has_output and plan.runs_directly
    memory, half = settings.memory, settings.memory.halved()
    by_ray = spec.cluster.executor == "ray" and spec.cluster.ray_address is not None
    reason = "set by the job"
    if spec.cluster.memory is None:
        reason = _ON_THIS_MACHINE if by_ray else "half of what is free now"
    yield "memory", f"{format_bytes(memory.total)} for all processes ({reason})"
    if settings.data_servers and not is_direct:
        yield (
            "  data servers",
            f"{format_bytes(memory.servers)}, then spill to {settings.spill_root}",
        )
    writer, combiner = format_bytes(memory.writer), format_bytes(memory.combiner)
    yield "  map", f"writer {writer}, combiner {combiner}"
    reducer, encoder = format_bytes(memory.reducer), format_bytes(memory.encoder)
    yield "  reduce", f"rows {reducer}, encoder {encoder}"
    if has_both:
        reducer, writer = format_bytes(half.reducer), format_bytes(half.writer)
        combiner = format_bytes(half.combiner)
        yield "  reduce and map", f"rows {reducer}, writer {writer}, combiner {combiner}"
    if spec.output.mode == "merge":
        yield "  rewrite", f"{format_bytes(memory.rewriter)}, after the data servers are empty"


def _output(output: OutputSection, url: str) -> Iterator[Line]:
    yield "output", url
    yield "  format", output.format
    yield "  mode", output.mode
    if output.mode == "merge":
        yield "  keys", ", ".join(output.keys)
    if output.partition_by:
        yield "  partition by", ", ".join(output.partition_by)


def labelled(lines: Iterable[Line]) -> list[str]:
    """Return lines in which all values begin at the same place."""
    return [f"{label + ':':<{_LABEL_WIDTH}} {value}".rstrip() for label, value in lines]
