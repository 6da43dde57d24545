"""Runs the reduces of a job, and before them the merges of heavy partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mrflight.memory import MemoryPlan
from mrflight.plan import JobPlan
from mrflight.reduce_plan import (
    PlannedReduce,
    check_shares,
    largest_first,
    plan_reduces,
    plan_shares,
)
from mrflight.shuffle.shuffle import Shuffle
from mrflight.sinks.base import PartWriter
from mrflight.stage import Stages
from mrflight.workers.tasks import MergeTask, ReduceResult, ReduceTask, run_merge, run_reduce
from mrflight.workers.workspace import Workspace


@dataclass(frozen=True)
class ReduceStage:
    """The reduces of one job, once its maps are done."""

    plan: JobPlan
    stages: Stages
    part_writer: PartWriter
    space: Workspace
    memory: MemoryPlan
    make_shuffle: Callable[[str], Shuffle]
    """Of a name, with as many partitions as the job's own."""
    writer_id: str
    """Of all attempts, whose numbers tell them apart."""

    def run(self, shuffle: Shuffle) -> list[ReduceResult]:
        """The results in the order of the partitions.

        Heavy partitions, where their number is ours to choose, are shared by several tasks. Rows
        that are the result themselves are written by those; partial rows are merged, into a
        second shuffle whose partitions are then reduced as the others are.
        """
        schema, partitions = shuffle.layout()
        reduction, workers = self.plan.reduction, self.stages.workers
        can_share = reduction.keeps_rows or reduction.partials(schema) is not None
        shares = plan_shares(partitions, workers) if self.plan.resizes and can_share else []
        heavy = {share.partition for share in shares}
        light = [info for info in partitions if info not in heavy]
        planned = plan_reduces(light, workers, is_merged=self.plan.resizes)
        tasks = [(shuffle, each) for each in planned]
        if reduction.keeps_rows:
            tasks = [(shuffle, each) for each in largest_first([*planned, *shares])]
        elif shares:
            merged = self._merge(shuffle, shares)
            filled = [info for info in merged.layout()[1] if info.rows]
            tasks += [(merged, PlannedReduce(((info,),))) for info in filled]
        make_task = partial(
            ReduceTask,
            schema=schema,
            reduction=reduction,
            part_writer=self.part_writer,
            space=self.space,
            overlaps=len(tasks) < workers,
        )
        results = self.stages.run(
            "reduce",
            [make_task(each.files, each.share, of) for of, each in tasks],
            lambda task, attempt: self.stages.submit(run_reduce, task, attempt),
            lambda results: f"{sum(result.rows_out for result in results):,} rows written",
        )
        done = [(each, result) for (_, each), result in zip(tasks, results, strict=True)]
        check_shares([(each, result.rows_out) for each, result in done if each.share])
        return [result for _, result in sorted(done, key=lambda pair: pair[0].place)]

    def _merge(self, shuffle: Shuffle, shares: Sequence[PlannedReduce]) -> Shuffle:
        """A second shuffle, with what the shares come to in the partitions that they are of."""
        merged = self.make_shuffle(f"{shuffle.id}-merged")
        schema, _ = shuffle.layout()
        tasks = [
            MergeTask(
                share.partition,
                share.share,
                shuffle,
                schema,
                self.plan.reduction,
                merged,
                number,
                self.plan.compression,
                self.memory.writer,
                self.memory.combiner,
            )
            for number, share in enumerate(shares)
            if share.share is not None
        ]
        rows = self.stages.run(
            "merge",
            tasks,
            lambda task, attempt: self.stages.submit(run_merge, task, attempt, self.writer_id),
            tidy_up=lambda task, attempts: merged.discard_losers(
                task.map_id, attempts, self.writer_id
            ),
        )
        check_shares(list(zip(shares, rows, strict=True)))
        return merged
