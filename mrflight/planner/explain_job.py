"""The plan of a job in words: pure functions of what was decided before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mrflight.config.memory import MemoryPlan
from mrflight.config.settings import RunSettings
from mrflight.config.spec import ClusterSection, JobSpec, OutputSection
from mrflight.planner.explain_stage import StageWords
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.stages import Stage
from mrflight.units import format_bytes

_LABEL_WIDTH = 15

_FORMATS = {
    "delta": "a Delta table",
    "parquet": "a folder of parquet files",
    "csv": "a folder of csv files",
    "arrow": "a folder of arrow files",
}

_MODES = {
    "error": "which is not to be there yet",
    "append": "whose rows stay",
    "overwrite": "whose rows are replaced",
}

Line = tuple[str, str]
"""What is told about, and what of it."""


def plan_in_words(spec: JobSpec, plan: JobPlan, settings: RunSettings) -> list[str]:
    """What is read, how it is moved and what is made of it, stage by stage, and with what memory.

    Sizes and numbers of a stage that reads others are estimates, and say so.
    """
    stages = plan.stages
    workers = _counted(settings.workers, "worker")
    told = [
        f"{spec.job.name}: {_counted(len(stages), 'stage')}, {workers}, {_servers(spec, settings)}"
    ]
    if spec.cluster.executor == "ray":
        told += _of_ray(spec.cluster)
    for stage in stages:
        told += ["", *([_heading(stage)] if len(stages) > 1 else [])]
        words = StageWords(stage, plan.plans[stage.name], plan.sources[stage.name])
        told += _laid_out(words.lines())
    reads = any(stage.reads for stage in stages)
    return [*told, "", *_laid_out(_memory(spec, settings, reads_stages=reads))]


def output_in_words(output: OutputSection, url: str, committed_run: str | None) -> list[str]:
    """Where the result goes; ``committed_run`` is there already."""
    told = [f"{url}, {_FORMATS[output.format]}"]
    if output.mode == "merge":
        told.append(f"into which rows are merged by {', '.join(output.keys)}")
    else:
        told.append(_MODES[output.mode])
    if output.partition_by:
        told.append(f"with a folder for each {', '.join(output.partition_by)}")
    lines = [("output", ", ".join(told))]
    if committed_run is not None:
        lines.append(("", f"run {committed_run!r} was committed before: there is nothing to do"))
    return _laid_out(lines)


def _heading(stage: Stage) -> str:
    heading = f"stage {stage.name}" if stage.name else "the last stage"
    if not stage.reads:
        return heading
    read = " and ".join(sorted(stage.reads))
    return f"{heading}, in estimates: {read} will tell what there is to move"


def _servers(spec: JobSpec, settings: RunSettings) -> str:
    if spec.cluster.metadata is not None:
        return f"data servers of {spec.cluster.metadata}"
    return _counted(settings.data_servers, "data server")


def _of_ray(cluster: ClusterSection) -> list[str]:
    """What of the plan Ray will decide, which is not asked."""
    if cluster.ray_address is None:
        return ["on a Ray of this machine, which the job starts and ends"]
    told = [f"on the Ray at {cluster.ray_address}"]
    keys = [key for key in ("workers", "memory") if getattr(cluster, key) is None]
    if keys:
        of_here = " and ".join(f"cluster.{key}" for key in keys)
        told.append(f"{of_here} as on this machine; unless told, they follow from all of its nodes")
    return told


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"


def _memory(spec: JobSpec, settings: RunSettings, *, reads_stages: bool) -> Iterator[Line]:
    memory = settings.memory
    why = "half of what is free now" if spec.cluster.memory is None else "as the job says"
    yield "memory", f"{format_bytes(memory.total)} for all processes together, {why}"
    if settings.data_servers:
        servers = format_bytes(memory.servers)
        yield "  data servers", f"{servers} before they write to {settings.spill_root}"
    yield "  a map", _of_map(memory)
    reducer, encoder = format_bytes(memory.reducer), format_bytes(memory.encoder)
    yield "  a reduce", f"{reducer} for its rows, {encoder} for those that wait to be encoded"
    if reads_stages:
        half = memory.halved()
        reducer = format_bytes(half.reducer)
        yield "  both in one", f"{reducer} for the rows of a stage, {_of_map(half)}"
    if spec.output.mode == "merge":
        yield "  a rewrite", f"{format_bytes(memory.rewriter)}, once the data servers are empty"


def _of_map(memory: MemoryPlan) -> str:
    writer, combiner = format_bytes(memory.writer), format_bytes(memory.combiner)
    return f"{writer} for what is not sent yet, {combiner} to combine rows"


def _laid_out(lines: Iterable[Line]) -> list[str]:
    return [f"{label:<{_LABEL_WIDTH}} {text}".rstrip() for label, text in lines]
