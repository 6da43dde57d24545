"""Runs a job whose rows are mapped and reduced by one task, without a shuffle."""

from __future__ import annotations

from collections.abc import Sequence

from mrflight.planner.job_plan import JobPlan
from mrflight.scheduler.job_context import JobContext
from mrflight.scheduler.map_counts import MapCounts
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.sinks.parts.base import PartWriter
from mrflight.system.progress import Work
from mrflight.tasks.direct_task import DirectResult, DirectTask, run_direct
from mrflight.tasks.part_files import ReduceResult
from mrflight.units import format_count

MAP_AND_REDUCE = "map and reduce"


class DirectScheduler:
    """Runs a job of one map and one partition, as `StageScheduler` runs those with shuffles."""

    def __init__(self, plan: JobPlan, context: JobContext) -> None:
        self._plan = plan
        self._context = context

    def write(self, part_writer: PartWriter) -> list[ReduceResult]:
        """Map and reduce all rows in one task, which leaves part files; return its result."""
        (map_task,) = self._plan.last.map_tasks
        context, runner = self._context, self._context.runner
        context.metrics.timer.begin("map")
        # The map's combiner, the reduce and the part files have together all memory of a worker.
        task = DirectTask(
            self._plan.job_id,
            map_task,
            context.task_memory,
            part_writer,
            overlaps=runner.workers > 1,
        )
        spec = TaskSetSpec(
            [task],
            lambda task, attempt: runner.submit(run_direct, task, attempt),
            work=_work,
            size_bytes=map_task.split.size_bytes,
        )
        (result,) = runner.run(MAP_AND_REDUCE, spec, _describe)
        counts = MapCounts(context.metrics, context.bad_row_files)
        counts.add([map_task], [result.map], size_bytes=0)
        return [result.reduce]


def _work(task: DirectTask, result: DirectResult) -> Work:
    return Work(result.map.rows_in, task.map.split.size_bytes)


def _describe(results: Sequence[DirectResult]) -> str:
    (result,) = results
    return f"{format_count(result.map.rows_in, 'row')} read, {result.reduce.rows_out:,} written"
