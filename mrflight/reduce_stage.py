"""Runs the reduces of a job, and before them the merges of heavy partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from mrflight.errors import IncompletePartitionError, NotRepeatableError
from mrflight.memory import MemoryPlan
from mrflight.mender import Anew, Stop
from mrflight.plan import JobPlan
from mrflight.produced import AnyProduced, PlacementMender, Produced
from mrflight.reduce_plan import (
    PlannedReduce,
    check_shares,
    largest_first,
    plan_reduces,
    plan_shares,
)
from mrflight.shuffle.shuffle import Shuffle
from mrflight.sinks.base import PartWriter
from mrflight.workers.tasks import MergeTask, ReduceResult, ReduceTask, run_merge, run_reduce
from mrflight.workers.workspace import Workspace


@dataclass(frozen=True)
class ReduceStage:
    """The reduces of one job, once its maps are done."""

    plan: JobPlan
    part_writer: PartWriter
    space: Workspace
    memory: MemoryPlan

    def run(self, mapped: AnyProduced) -> list[ReduceResult]:
        """The results in the order of the partitions.

        Heavy partitions, where their number is ours to choose, are shared by several tasks. Rows
        that are the result themselves are written by those; partial rows are merged, into a
        second shuffle whose partitions are then reduced as the others are.
        """
        schema, partitions = mapped.layout()
        reduction, stages = self.plan.reduction, mapped.run.stages
        workers = stages.workers
        can_share = reduction.keeps_rows or reduction.partials(schema) is not None
        shares = plan_shares(partitions, workers) if self.plan.resizes and can_share else []
        heavy = {share.partition for share in shares}
        light = [info for info in partitions if info not in heavy]
        planned = plan_reduces(
            light,
            workers,
            is_merged=self.plan.resizes,
            closes_late=self.part_writer.closing_files > 0,
        )
        tasks = [(mapped, each) for each in planned]
        if reduction.keeps_rows:
            tasks = [(mapped, each) for each in largest_first([*planned, *shares])]
        elif shares:
            merged = self._merge(mapped, schema, shares)
            filled = [info for info in merged.layout()[1] if info.rows]
            now = mapped.infos()  # last: of what was lost meanwhile there are no news any more
            tasks = [(mapped, each.as_in(now)) for each in planned]
            tasks += [(merged, PlannedReduce(((info,),))) for info in filled]
        make_task = partial(
            ReduceTask,
            schema=schema,
            reduction=reduction,
            part_writer=self.part_writer,
            space=self.space,
            overlaps=len(tasks) < workers,
        )
        reducing = _Reducing(tasks, make_task)
        results = stages.run(
            "reduce",
            reducing.tasks(),
            lambda task, attempt: stages.submit(run_reduce, task, attempt),
            lambda results: f"{sum(result.rows_out for result in results):,} rows written",
            mender=reducing,
        )
        done = list(zip(reducing.planned, results, strict=True))
        _count_shares([(each, result.rows_out) for each, result in done if each.share])
        return [result for _, result in sorted(done, key=lambda pair: pair[0].place)]

    def _merge(
        self, mapped: AnyProduced, schema: pa.Schema, shares: Sequence[PlannedReduce]
    ) -> AnyProduced:
        """A second shuffle, with what the shares come to in the partitions that they are of."""
        shuffle = mapped.run.make_shuffle(f"{mapped.shuffle.id}-merged")
        tasks = [
            MergeTask(
                share.partition,
                share.share,
                mapped.shuffle,
                schema,
                self.plan.reduction,
                shuffle,
                number,
                self.plan.compression,
                self.memory.writer,
                self.memory.combiner,
            )
            for number, share in enumerate(shares)
            if share.share is not None
        ]
        merged = Merged(mapped, shuffle, tasks)
        rows = merged.write()
        _count_shares(list(zip(shares, rows, strict=True)))
        return merged


def _count_shares(read: Sequence[tuple[PlannedReduce, int]]) -> None:
    """Raise NotRepeatableError where rows are missing, which no attempt alone could see."""
    try:
        check_shares(read)
    except IncompletePartitionError as error:
        raise NotRepeatableError(str(error)) from error


class Merged(Produced[MergeTask, int]):
    """The shuffle of merged shares."""

    def __init__(self, mapped: AnyProduced, shuffle: Shuffle, tasks: Sequence[MergeTask]) -> None:
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
    def reads(self) -> Sequence[AnyProduced]:
        return (self._mapped,)

    def refresh(self) -> None:
        """Read the shares where they are now.

        NotRepeatableError where a shared partition was written again: its blocks are others, so
        that its shares would not be those that have been merged already.
        """
        infos = self._mapped.infos()
        for number, task in enumerate(self.tasks):
            info = infos[task.info.partition]
            if info.generation != task.info.generation:
                raise NotRepeatableError(
                    f"partition {info.partition} was lost while its shares were merged"
                )
            self.tasks[number] = replace(task, info=info)


class _Reducing(PlacementMender[ReduceTask]):
    """Mends the reduces: those read elsewhere whose partitions are elsewhere now."""

    def __init__(
        self,
        tasks: Sequence[tuple[AnyProduced, PlannedReduce]],
        make_task: Callable[..., ReduceTask],
    ) -> None:
        self.planned = [each for _, each in tasks]
        self._of = [produced for produced, _ in tasks]
        self._make_task = make_task
        super().__init__(list({id(produced): produced for produced in self._of}.values()))

    def _read_with(self, partition: int) -> Sequence[AnyProduced]:
        """The one: what is merged is not read from where it was before."""
        of = zip(self._of, self.planned, strict=True)
        read = (p for p, each in of if partition in {info.partition for info in each.infos})
        return list({id(produced): produced for produced in read}.values())

    def tasks(self) -> list[ReduceTask]:
        return [self._task(number) for number in range(len(self.planned))]

    def _anew(self, unfinished: Sequence[int], stop: Stop, *, is_told: bool) -> Anew[ReduceTask]:
        """Tasks that are not done and whose partitions are elsewhere now.

        And all shares of a partition that was written again: its blocks are others, and so are
        the rows of a share.
        """
        for produced in self._uses:
            produced.await_servers()
        placements = {id(produced): produced.asked.placement() for produced in self._uses}
        stop(
            number
            for number in unfinished
            if self.planned[number].is_away_from(placements[id(self._of[number])])
        )
        infos = {id(produced): produced.infos() for produced in self._uses}
        anew = []
        for number, each in enumerate(self.planned):
            now = each.as_in(infos[id(self._of[number])])
            if (number in unfinished and now.is_elsewhere(each)) or now.is_cut_anew(each):
                self.planned[number] = now
                anew.append(number)
        return {number: self._task(number) for number in anew}

    def _task(self, number: int) -> ReduceTask:
        each = self.planned[number]
        return self._make_task(each.files, each.share, self._of[number].shuffle)
