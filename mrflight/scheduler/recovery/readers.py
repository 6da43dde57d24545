"""The recovery of tasks that read the output of stages: samples and reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mrflight.planner.reduce_tasks import ReduceTaskPlan
from mrflight.scheduler.recovery.protocol import Resubmit, Stop
from mrflight.scheduler.recovery.writers import AnyShuffleOutput, PlacementRecovery
from mrflight.scheduler.stage_output import StageOutput, relocate_tasks, shuffle_outputs_of
from mrflight.tasks.reduce_task import ReduceTask
from mrflight.tasks.sample_task import SampleTask
from mrflight.tasks.task_memory import TaskMemory


class SampleRecovery(PlacementRecovery[SampleTask]):
    """Recovers samples of earlier stages' output: they read it again once it is whole."""

    def __init__(self, tasks: Sequence[SampleTask], inputs: Sequence[StageOutput]) -> None:
        super().__init__(shuffle_outputs_of(inputs))
        self._tasks = list(tasks)
        self._inputs = inputs

    def _outputs_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        return self._outputs

    def _resubmit(
        self, unfinished: Sequence[int], stop: Stop, *, is_reported: bool
    ) -> Resubmit[SampleTask]:
        """Resubmit all unfinished samples."""
        stop(unfinished)
        for output in self._outputs:
            output.repair()
        self._tasks = relocate_tasks(self._tasks, self._inputs)
        return {number: self._tasks[number] for number in unfinished}


class ReduceRecovery(PlacementRecovery[ReduceTask]):
    """Recovers reduces whose partitions have moved or were written again."""

    def __init__(
        self,
        tasks: Sequence[tuple[StageOutput, ReduceTaskPlan]],
        make_task: Callable[..., ReduceTask],
        task_memory: TaskMemory,
    ) -> None:
        """``tasks`` are what the stage runs, each with the output that it reads."""
        self.planned = [plan for _, plan in tasks]
        self._read_by = [stage for stage, _ in tasks]
        self._make_task = make_task
        self._stages = list({id(stage): stage for stage in self._read_by}.values())
        self._rows = {id(stage): stage.rows(task_memory) for stage in self._stages}
        super().__init__(shuffle_outputs_of(self._stages))

    def _outputs_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        """Return those of one stage: skewed partitions are read from a second shuffle only."""
        pairs = zip(self._read_by, self.planned, strict=True)
        read = (s for s, plan in pairs if partition in {p.partition for p in plan.partitions})
        return shuffle_outputs_of(list({id(stage): stage for stage in read}.values()))

    def tasks(self) -> list[ReduceTask]:
        """Return the tasks of the stage, with the locations that are known now."""
        return [self._task(number) for number in range(len(self.planned))]

    def _resubmit(
        self, unfinished: Sequence[int], stop: Stop, *, is_reported: bool
    ) -> Resubmit[ReduceTask]:
        """Resubmit the unfinished reduces whose partitions moved, and outdated slices.

        If a skewed partition was written again, its blocks are others, so that all of its slices
        have other rows than before and run again, whether they are done or not.
        """
        for output in self._outputs:
            output.await_servers()
        placements = {
            id(stage): [output.clamped.placement() for output in stage.sides]
            for stage in self._stages
        }
        stop(
            number
            for number in unfinished
            if self.planned[number].is_away_from(placements[id(self._read_by[number])])
        )
        partitions = {id(stage): stage.by_number() for stage in self._stages}
        still = set(unfinished)
        again = []
        for number, before in enumerate(self.planned):
            now = before.with_partitions(partitions[id(self._read_by[number])])
            if (number in still and now.has_moved(before)) or now.has_other_slices(before):
                self.planned[number] = now
                again.append(number)
        return {number: self._task(number) for number in again}

    def _task(self, number: int) -> ReduceTask:
        plan = self.planned[number]
        rows = self._rows[id(self._read_by[number])]
        return self._make_task(plan.files, plan.side_slice, rows)
