"""Where the time of a job went, from its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from mrflight.events.driver_stages import DRIVER
from mrflight.events.durations import Durations
from mrflight.events.findings import find
from mrflight.events.job_view import JobView
from mrflight.events.kinds import QueryStage
from mrflight.events.operator_work import added
from mrflight.events.stage_view import StageView
from mrflight.result import JobProfile, OperatorProfile, StageProfile

_BEFORE_THE_STAGES = "check"
"""The stage in which workers import functions, while servers start."""


def profile(view: JobView) -> JobProfile:
    """Return what the stages of a job took until now, and what stands out.

    Task sets of the same name are one stage: a stage that ran again, or parts of it.
    """
    named: dict[str, list[StageView]] = {}
    for stage in view.stages.values():
        if stage.attempts and DRIVER not in stage.workers and stage.name != _BEFORE_THE_STAGES:
            named.setdefault(stage.name, []).append(stage)
    stages = tuple(_profile(name, of) for name, of in named.items())
    return JobProfile(stages, tuple(find(view)))


def _profile(name: str, stages: Sequence[StageView]) -> StageProfile:
    durations = Durations()
    for stage in stages:
        durations.add_all(stage.durations)
    slowest = [task for stage in stages for task in stage.slowest]
    longest = max(slowest, key=lambda task: task.seconds).name if slowest else ""
    runs = next((stage.runs for stage in stages if stage.runs is not None), None)
    return StageProfile(
        name,
        tasks=sum(stage.tasks for stage in stages if not stage.within) or stages[0].tasks,
        attempts=sum(stage.attempts for stage in stages),
        retried=sum(stage.retried for stage in stages),
        speculative=sum(stage.speculative for stage in stages),
        seconds=round(sum(stage.seconds for stage in stages if not stage.within), 4),
        median_seconds=round(durations.median(), 4),
        longest_seconds=round(durations.longest, 4),
        longest_task=longest,
        cpu_seconds=round(sum(stage.cpu_seconds for stage in stages), 4),
        rows=sum(stage.rows for stage in stages),
        size_bytes=sum(stage.done_bytes for stage in stages),
        sent_bytes=sum(stage.sent_bytes for stage in stages),
        fetched_bytes=sum(stage.fetched_bytes for stage in stages),
        spilled_bytes=sum(stage.spilled_bytes for stage in stages),
        memory_bytes=max(stage.memory_bytes for stage in stages),
        query_stage="" if runs is None else runs.title,
        operators=() if runs is None else _operators(runs, stages),
    )


def _operators(runs: QueryStage, stages: Sequence[StageView]) -> tuple[OperatorProfile, ...]:
    """Return the metrics of the operators; none if the tasks reported none."""
    work = reduce(added, (stage.operators for stage in stages))
    if len(work) != len(runs.operators):
        return ()
    return tuple(
        OperatorProfile(text, each.rows, each.seconds)
        for text, each in zip(runs.operators, work, strict=True)
    )
