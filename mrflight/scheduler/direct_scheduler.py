"""Runs a job whose rows are mapped, reduced and written by the same tasks, without a shuffle."""

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
    """Runs a job without a shuffle, as `StageScheduler` runs those with shuffles."""

    def __init__(self, plan: JobPlan, context: JobContext) -> None:
        self._plan = plan
        self._context = context

    def write(self, part_writer: PartWriter) -> list[ReduceResult]:
        """Run the tasks, which leave part files; return their results."""
        map_tasks = self._plan.last.map_tasks
        context, runner = self._context, self._context.runner
        context.metrics.timer.begin("map")
        # The map's combiner, the reduce and the part files have together all memory of a worker.
        tasks = [
            DirectTask(
                self._plan.job_id,
                map_task,
                context.task_memory,
                part_writer,
                overlaps=runner.workers > len(map_tasks),
            )
            for map_task in map_tasks
        ]
        spec = TaskSetSpec(
            tasks,
            lambda task, attempt: runner.submit(run_direct, task, attempt),
            work=_work,
            size_bytes=sum(map_task.split.size_bytes for map_task in map_tasks),
        )
        results = runner.run(MAP_AND_REDUCE, spec, _describe)
        counts = MapCounts(context.metrics, context.bad_row_files)
        counts.add(map_tasks, [result.map for result in results], size_bytes=0)
        return [result.reduce for result in results]


def _work(task: DirectTask, result: DirectResult) -> Work:
    return Work(result.map.rows_in, task.map.split.size_bytes)


def _describe(results: Sequence[DirectResult]) -> str:
    read = sum(result.map.rows_in for result in results)
    written = sum(result.reduce.rows_out for result in results)
    return f"{format_count(read, 'row')} read, {written:,} written"
