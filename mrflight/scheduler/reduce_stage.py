"""Runs the reduces of a job, and before them the merges of heavy partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.memory import MemoryPlan
from mrflight.planner.reduce_tasks import (
    ONLY_SIDE,
    ReduceTaskPlan,
    check_shares,
    largest_first,
    plan_reduce_tasks,
    split_skewed,
)
from mrflight.planner.stage_plan import StagePlan
from mrflight.scheduler.map_output import AnyShuffleOutput, PlacementRecovery, ShuffleOutput
from mrflight.scheduler.recovery import Resubmit, Stop
from mrflight.scheduler.stage_output import StageOutput
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.sinks.base import PartWriter
from mrflight.tasks.stage_rows import check_cut_alike
from mrflight.tasks.task_memory import Workspace
from mrflight.tasks.tasks import MergeTask, ReduceResult, ReduceTask, run_merge, run_reduce


class ReduceStage(msgspec.Struct, frozen=True):
    """The reduces of one job, once its maps are done."""

    plan: StagePlan
    part_writer: PartWriter
    space: Workspace
    memory: MemoryPlan

    def run(self, stage: StageOutput) -> list[ReduceResult]:
        """The results in the order of the partitions.

        Heavy partitions, where their number is ours to choose, are shared by several tasks. Rows
        that are the result themselves are written by those; partial rows are merged, into a
        second shuffle whose partitions are then reduced as the others are.
        """
        partitions = stage.partitions()
        schemas = stage.schemas
        reduce_spec, stages = self.plan.reduce_spec, stage.run.stages
        workers = stages.workers
        sides = self._shared_sides(schemas)
        shares = split_skewed(partitions, workers, sides) if sides else []
        heavy = {share.partition for share in shares}
        planned = plan_reduce_tasks(
            [each for each in partitions if each not in heavy],
            workers,
            is_merged=self.plan.resizes,
            closes_late=self.part_writer.closing_files > 0,
        )
        tasks = [(stage, each) for each in planned]
        if reduce_spec.keeps_rows:
            tasks = [(stage, each) for each in largest_first([*planned, *shares])]
        elif shares:
            merged = self._merge(stage.sides[0], schemas[0], shares)
            filled = [each for each in merged.partitions() if each.rows]
            now = stage.by_number()  # last: of what was lost meanwhile there are no news any more
            tasks = [(stage, each.as_in(now)) for each in planned]
            tasks += [(merged, ReduceTaskPlan(((each,),))) for each in filled]
        make_task = partial(ReduceTask, part_writer=self.part_writer, overlaps=len(tasks) < workers)
        reducing = ReduceRecovery(tasks, make_task, self.space)
        results = stages.run(
            "reduce",
            reducing.tasks(),
            lambda task, attempt: stages.submit(run_reduce, task, attempt),
            lambda results: f"{sum(result.rows_out for result in results):,} rows written",
            recovery=reducing,
        )
        done = list(zip(reducing.planned, results, strict=True))
        check_shares([(each.shared, result.share_rows) for each, result in done if each.share])
        return [result for _, result in sorted(done, key=lambda pair: pair[0].place)]

    def _shared_sides(self, schemas: Sequence[pa.Schema]) -> Mapping[int, bool]:
        """See `StagePlan.shared_sides`; the one of partial rows, which are merged, as well."""
        plan = self.plan
        if not plan.resizes:
            return {}
        if sides := plan.shared_sides(schemas):
            return sides
        merges = plan.cogroup is None and plan.reduce_spec.partials(schemas[0]) is not None
        return ONLY_SIDE if merges else {}

    def _merge(
        self, mapped: AnyShuffleOutput, schema: pa.Schema, shares: Sequence[ReduceTaskPlan]
    ) -> StageOutput:
        """A second shuffle, with what the shares come to in the partitions that they are of."""
        partitions = mapped.shuffle.partitions
        shuffle = mapped.run.make_shuffle(f"{mapped.shuffle.id}-merged", partitions)
        tasks = [
            MergeTask(
                share.partition.infos[0],
                share.share,
                mapped.shuffle,
                schema,
                self.plan.reduce_spec,
                shuffle,
                number,
                self.plan.compression,
                self.memory.writer,
                self.memory.combiner,
            )
            for number, share in enumerate(shares)
            if share.share is not None
        ]
        merged = MergedOutput(mapped, shuffle, tasks)
        rows = merged.write()
        check_shares(list(zip((share.shared for share in shares), rows, strict=True)))
        return StageOutput(self.plan, (merged,))


class MergedOutput(ShuffleOutput[MergeTask, int]):
    """The shuffle of merged shares."""

    def __init__(
        self, mapped: AnyShuffleOutput, shuffle: Shuffle, tasks: Sequence[MergeTask]
    ) -> None:
        self._mapped = mapped
        run = mapped.run
        super().__init__(
            run,
            shuffle,
            "merge",
            tasks,
            lambda task, attempt: run.stages.submit(run_merge, task, attempt, run.writer_id),
        )

    @property
    def reads(self) -> Sequence[AnyShuffleOutput]:
        return (self._mapped,)

    def refresh(self) -> None:
        """Read the shares where they are now; InconsistentMapOutputError as `check_cut_alike`."""
        infos = self._mapped.infos()
        for number, task in enumerate(self.tasks):
            info = infos[task.info.partition]
            check_cut_alike(info, task.info)
            self.tasks[number] = replace(task, info=info)


class ReduceRecovery(PlacementRecovery[ReduceTask]):
    """Mends the reduces: those read elsewhere whose partitions are elsewhere now."""

    def __init__(
        self,
        tasks: Sequence[tuple[StageOutput, ReduceTaskPlan]],
        make_task: Callable[..., ReduceTask],
        space: Workspace,
    ) -> None:
        self.planned = [each for _, each in tasks]
        self._of = [stage for stage, _ in tasks]
        self._make_task = make_task
        self._stages = list({id(stage): stage for stage in self._of}.values())
        self._rows = {id(stage): stage.rows(space) for stage in self._stages}
        super().__init__([produced for stage in self._stages for produced in stage.sides])

    def _read_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        """Those of one stage: what is merged is not read from where it was before."""
        of = zip(self._of, self.planned, strict=True)
        read = (s for s, each in of if partition in {p.partition for p in each.partitions})
        stages = {id(stage): stage for stage in read}.values()
        return [produced for stage in stages for produced in stage.sides]

    def tasks(self) -> list[ReduceTask]:
        return [self._task(number) for number in range(len(self.planned))]

    def _anew(
        self, unfinished: Sequence[int], stop: Stop, *, is_told: bool
    ) -> Resubmit[ReduceTask]:
        """Tasks that are not done and whose partitions are elsewhere now.

        And all shares of a partition that was written again: its blocks are others, and so are
        the rows of a share.
        """
        for produced in self._uses:
            produced.await_servers()
        placements = {
            id(stage): [produced.asked.placement() for produced in stage.sides]
            for stage in self._stages
        }
        stop(
            number
            for number in unfinished
            if self.planned[number].is_away_from(placements[id(self._of[number])])
        )
        partitions = {id(stage): stage.by_number() for stage in self._stages}
        still = set(unfinished)
        anew = []
        for number, each in enumerate(self.planned):
            now = each.as_in(partitions[id(self._of[number])])
            if (number in still and now.is_elsewhere(each)) or now.is_cut_anew(each):
                self.planned[number] = now
                anew.append(number)
        return {number: self._task(number) for number in anew}

    def _task(self, number: int) -> ReduceTask:
        each = self.planned[number]
        rows = self._rows[id(self._of[number])]
        return self._make_task(each.files, each.portion, rows)
