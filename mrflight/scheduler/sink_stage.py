"""Runs what a sink has for workers to do as a stage of its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mrflight.config.memory import MemoryPlan
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.sinks.base import SinkTask, SinkTasks

STAGE = "rewrite"


def sink_tasks(stages: StageRunner, memory: MemoryPlan, *, quietly: bool = False) -> SinkTasks:
    """``quietly``: within the commit, which is a stage itself."""

    def run(tasks: Sequence[SinkTask], note: Callable[[list[Any]], str]) -> list[Any]:
        if quietly:
            return stages.run_quietly(STAGE, tasks, submit)
        return stages.run(STAGE, tasks, submit, note)

    def submit(task: SinkTask, attempt: int) -> Any:
        return stages.submit(task.run, attempt)

    return SinkTasks(run, stages.workers, memory.rewriter, memory.encoder)
