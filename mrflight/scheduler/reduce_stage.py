"""Runs the reduces of a job, after the partial aggregation of its skewed partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.memory import MemoryPlan
from mrflight.events.kinds import QueryStage
from mrflight.planner.keys import ONLY_SIDE
from mrflight.planner.reduce_tasks import (
    ReduceTaskPlan,
    check_slices,
    largest_first,
    plan_reduce_tasks,
    split_skewed,
)
from mrflight.planner.stage_plan import StagePlan
from mrflight.scheduler.recovery.readers import ReduceRecovery
from mrflight.scheduler.recovery.writers import AnyShuffleOutput, ShuffleOutput
from mrflight.scheduler.stage_output import StageOutput
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.sinks.parts.base import PartWriter
from mrflight.system.progress import Work
from mrflight.tasks.map_task import WriteLimits
from mrflight.tasks.part_files import ReduceResult
from mrflight.tasks.partial_aggregate_task import PartialAggregateTask, run_partial_aggregate
from mrflight.tasks.reduce_task import ReduceTask, run_reduce
from mrflight.tasks.stage_reader import check_same_generation
from mrflight.tasks.task_memory import TaskMemory
from mrflight.units import format_count


class ReduceStage(msgspec.Struct, frozen=True):
    """The reduces of a job, once its maps are done."""

    part_writer: PartWriter
    task_memory: TaskMemory
    memory: MemoryPlan
    runs: QueryStage | None = None
    """The stage of a query whose result the reduces make."""

    def run(self, stage: StageOutput) -> list[ReduceResult]:
        """Run all reduces; return their results in the order of the partitions.

        If the plan may resize partitions, several tasks read the slices of a skewed one. Slices
        whose rows are the result write them. Slices of partial aggregates send them to a second
        shuffle, whose partitions are reduced like the others.
        """
        runner = stage.run.runner
        tasks = self._plan_tasks(stage)
        overlaps = len(tasks) < runner.workers
        make_task = partial(ReduceTask, part_writer=self.part_writer, overlaps=overlaps)
        recovery = ReduceRecovery(tasks, make_task, self.task_memory)
        results = runner.run(
            "reduce",
            TaskSetSpec(
                recovery.tasks(),
                lambda task, attempt: runner.submit(run_reduce, task, attempt),
                recovery=recovery,
                work=_written,
                runs=self.runs,
            ),
            lambda results: f"{format_count(sum(r.rows_out for r in results), 'row')} written",
        )
        done = list(zip(recovery.planned, results, strict=True))
        check_slices(
            [(each.sliced, result.slice_rows) for each, result in done if each.partition_slice]
        )
        return [result for _, result in sorted(done, key=lambda pair: pair[0].position)]

    def _plan_tasks(self, stage: StageOutput) -> list[tuple[StageOutput, ReduceTaskPlan]]:
        """Plan the reduces, each with the output that it reads; aggregate slices before."""
        partitions = stage.partitions()
        runner = stage.run.runner
        sides = _sliceable_sides(stage.plan, stage.schemas)
        slices = split_skewed(partitions, runner.workers, sides) if sides else []
        skewed = {each.partition for each in slices}
        planned = plan_reduce_tasks(
            [each for each in partitions if each not in skewed],
            runner.workers,
            coalesces=stage.plan.is_adaptive,
            slow_close=self.part_writer.max_closing_files > 0,
        )
        if stage.plan.reduce_spec.keeps_rows:
            return [(stage, each) for each in largest_first([*planned, *slices])]
        if not slices:
            return [(stage, each) for each in planned]
        aggregated = self._aggregate_slices(stage, slices)
        filled = [each for each in aggregated.partitions() if each.rows]
        # Last, because losses until here would otherwise not make the recovery stale.
        now = stage.by_number()
        tasks = [(stage, each.with_partitions(now)) for each in planned]
        return [*tasks, *((aggregated, ReduceTaskPlan(((each,),))) for each in filled)]

    def _aggregate_slices(
        self, stage: StageOutput, slices: Sequence[ReduceTaskPlan]
    ) -> StageOutput:
        """Aggregate each slice, and send the result to its partition of a second shuffle."""
        plan, (mapped,), (schema,) = stage.plan, stage.sides, stage.schemas
        partitions = mapped.shuffle.partitions
        shuffle = mapped.run.shuffles.create(f"{mapped.shuffle.id}-aggregated", partitions)
        limits = WriteLimits(plan.compression, self.memory.writer, self.memory.combiner)
        tasks = [
            PartialAggregateTask(
                each.partition.infos[0],
                each.partition_slice,
                mapped.shuffle,
                schema,
                plan.reduce_spec,
                shuffle,
                number,
                limits,
            )
            for number, each in enumerate(slices)
            if each.partition_slice is not None
        ]
        aggregated = AggregatedOutput(mapped, shuffle, tasks)
        rows = aggregated.write()
        check_slices(list(zip((each.sliced for each in slices), rows, strict=True)))
        return StageOutput(plan, (aggregated,))


def _written(task: ReduceTask, result: ReduceResult) -> Work:
    """Return the rows and bytes of the part files of a task."""
    return Work(result.rows_out, sum(part.size_bytes for part in result.parts))


def _sliceable_sides(plan: StagePlan, schemas: Sequence[pa.Schema]) -> Mapping[int, bool]:
    """See `StagePlan.sliceable_sides`; the side of partial aggregates can be sliced as well."""
    if not plan.is_adaptive:
        return {}
    if sides := plan.sliceable_sides(schemas):
        return sides
    aggregates = plan.cogroup is None and plan.reduce_spec.partials(schemas[0]) is not None
    return ONLY_SIDE if aggregates else {}


class AggregatedOutput(ShuffleOutput[PartialAggregateTask, int]):
    """The second shuffle, with the partial aggregates of slices."""

    def __init__(
        self, mapped: AnyShuffleOutput, shuffle: Shuffle, tasks: Sequence[PartialAggregateTask]
    ) -> None:
        self._mapped = mapped
        run = mapped.run
        super().__init__(
            run,
            shuffle,
            "aggregate",
            tasks,
            lambda task, attempt: run.runner.submit(
                run_partial_aggregate, task, attempt, run.writer_id
            ),
        )

    @property
    def inputs(self) -> Sequence[AnyShuffleOutput]:
        return (self._mapped,)

    def refresh(self) -> None:
        """Point the tasks to the slices' current locations.

        Raises InconsistentMapOutputError as `check_same_generation`.
        """
        infos = self._mapped.infos()
        for number, task in enumerate(self.tasks):
            info = infos[task.info.partition]
            check_same_generation(info, task.info)
            self.tasks[number] = replace(task, info=info)
