"""A job's rows on their way from its inputs to part files: sample, map, reduce."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from mrflight.deadline import Deadline
from mrflight.errors import NotRepeatableError, SchemaMismatchError
from mrflight.job_record import JobRecord
from mrflight.job_run import JobRun
from mrflight.job_shuffles import JobShuffles
from mrflight.losses import Losses
from mrflight.memory import MemoryPlan
from mrflight.plan import JobPlan
from mrflight.produced import Produced
from mrflight.quantities import format_bytes
from mrflight.reduce_stage import ReduceStage
from mrflight.shuffle.partitioners import choose_boundaries
from mrflight.shuffle.shuffle import Shuffle
from mrflight.sinks.base import PartWriter
from mrflight.stage import Stages
from mrflight.workers.tasks import MapResult, MapTask, ReduceResult, run_map, run_sample
from mrflight.workers.workspace import Workspace


@dataclass(frozen=True)
class Moving:
    """How the rows of one job are moved."""

    plan: JobPlan
    stages: Stages
    shuffles: JobShuffles
    part_writer: PartWriter
    space: Workspace
    memory: MemoryPlan
    record: JobRecord
    deadline: Deadline
    most_runs: int
    """Where what is lost cannot be made again alone, and all is."""

    def run(self, shuffle: Shuffle) -> list[ReduceResult]:
        """Sample, map and reduce, by a shuffle that was just made. Leaves part files.

        The results are in the order of the partitions; at least one.
        """
        self.record.clock.begin("map")
        tasks = self._sampled()
        job_id = shuffle.id
        for number in range(1, self.most_runs + 1):
            try:
                return self._run(self._mapped(tasks, shuffle))
            except NotRepeatableError as error:
                if number == self.most_runs:
                    raise
                self.record.clock.begin("map")
                self.stages.tell(f"all maps and reduces are made again: {error}")
                self.shuffles.drop()
                shuffle = self.shuffles.make(f"{job_id}-{number}")
        raise AssertionError("there is at least one run")

    def _run(self, mapped: Produced[MapTask, MapResult]) -> list[ReduceResult]:
        record = self.record

        def note(results: list[MapResult]) -> str:
            record.rows_in = sum(result.rows_in for result in results)
            record.bytes_shuffled = mapped.asked.health().size_bytes
            size = format_bytes(record.bytes_shuffled)
            return f"{record.rows_in:,} rows read, {size} shuffled"

        mapped.write(note)
        record.clock.begin("reduce")
        stage = ReduceStage(self.plan, self.part_writer, self.space, self.memory)
        return stage.run(mapped)

    def _mapped(self, tasks: tuple[MapTask, ...], shuffle: Shuffle) -> Produced[MapTask, MapResult]:
        """The shuffle of a run of the job, and how it is written."""
        run = JobRun(self.stages, self.shuffles.make, self.shuffles.watch, Losses(self.deadline))
        return Produced(
            run,
            shuffle,
            "map",
            tasks,
            lambda task, attempt: run.stages.submit(run_map, task, attempt, shuffle, run.writer_id),
        )

    def _sampled(self) -> tuple[MapTask, ...]:
        """The map tasks, a range partitioner's with its boundaries."""
        plan = self.plan
        if not plan.sample_tasks:
            return plan.map_tasks
        samples = self.stages.run(
            "sample", plan.sample_tasks, lambda task, _: self.stages.submit(run_sample, task)
        )
        try:
            sample = pa.concat_tables(samples, promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"the keys of the inputs do not go together: {error}; give them the same types"
            ) from error
        spreads = plan.reduction.sorts_rows  # groups and functions want equal keys together
        boundaries = choose_boundaries(
            sample, sample.column_names, plan.partitions, repeats=spreads
        )
        maps = len(plan.map_tasks) if spreads else None
        return tuple(
            replace(task, partitioner=replace(task.partitioner, boundaries=boundaries, maps=maps))
            for task in plan.map_tasks
        )
