"""A job's rows on their way from its inputs to part files: stage by stage, sample, map, reduce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.memory import MemoryPlan
from mrflight.errors import InconsistentMapOutputError, SchemaMismatchError
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.map_plan import ShuffleInput
from mrflight.planner.stage_plan import StagePlan
from mrflight.planner.stages import Stage, with_key_prefix, written
from mrflight.scheduler.losses import FetchFailureReporter
from mrflight.scheduler.metrics import JobMetrics
from mrflight.scheduler.recovery import NO_RECOVERY
from mrflight.scheduler.reduce_stage import ReduceStage
from mrflight.scheduler.run_context import RunContext
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_output import (
    BroadcastJoinOutput,
    MapOutput,
    SampleRecovery,
    StageOutput,
    StageResult,
)
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.shuffle.client.range_partitioner import choose_boundaries
from mrflight.sinks.base import PartWriter
from mrflight.system.deadlines import Deadline
from mrflight.tasks.task_memory import Workspace
from mrflight.tasks.tasks import MapResult, MapTask, ReduceResult, run_sample
from mrflight.units import format_bytes


class StageScheduler(msgspec.Struct, frozen=True):
    """How the rows of one job are moved."""

    plan: JobPlan
    stages: StageRunner
    shuffles: JobShuffles
    part_writer: PartWriter
    space: Workspace
    memory: MemoryPlan
    record: JobMetrics
    deadline: Deadline
    most_runs: int
    """Where what is lost cannot be made again alone, and all is."""

    def run(self) -> list[ReduceResult]:
        """Sample, map and reduce. Leaves part files.

        The results are in the order of the partitions; at least one.
        """
        for number in range(self.most_runs):
            self.record.clock.begin("map")
            name = f"{self.plan.job_id}-{number}" if number else self.plan.job_id
            try:
                return self._run(name)
            except InconsistentMapOutputError as error:
                if number + 1 == self.most_runs:
                    raise
                self.stages.notify(f"all maps and reduces are made again: {error}")
                self.shuffles.drop()
        raise AssertionError("there is at least one run")

    def _run(self, name: str) -> list[ReduceResult]:
        """Move everything through shuffles whose names begin so."""
        run = RunContext(
            self.stages,
            self.shuffles.make,
            self.shuffles.watch,
            FetchFailureReporter(self.deadline),
        )
        made: dict[str, StageResult] = {}
        moved: Counter[str] = Counter()
        for stage in self.plan.stages:
            with with_key_prefix(stage):
                made[stage.name] = self._shuffled(run, name, stage, made, moved)
        self.record.clock.begin("reduce")
        last = made[self.plan.stages[-1].name]
        if isinstance(last, BroadcastJoinOutput):
            last = self._shuffled(run, name, written(self.plan.stages[-1]), made, moved)
        assert isinstance(last, StageOutput), "nothing is broadcast to rows that are written"
        self.record.partitions = last.plan.partitions
        return ReduceStage(last.plan, self.part_writer, self.space, self.memory).run(last)

    def _shuffled(
        self,
        run: RunContext,
        name: str,
        stage: Stage,
        made: dict[str, StageResult],
        moved: Counter[str],
    ) -> StageResult:
        """A stage whose maps are done; ``moved`` counts the rows read, and the bytes shuffled."""
        plan = self._planned(stage, made)
        read = _shuffled_for(stage, made)
        sides = []
        for number, side in enumerate(plan.sides):
            parts = [name, stage.name, str(number) if plan.cogroup else ""]
            shuffle = run.make_shuffle("-".join(filter(None, parts)), side.partitions)
            parts = ["map", stage.name, side.name if plan.cogroup else ""]
            label = " ".join(filter(None, parts))
            mapped = MapOutput(run, shuffle, label, self._sampled(plan, side, read), read)
            mapped.refresh()  # what is read may have moved since it was planned
            self._write(mapped, moved)
            sides.append(mapped)
        if plan.stream is None:
            return StageOutput(plan, tuple(sides))
        tables = [
            StageOutput(replace(plan, sides=(side,), stream=None, cogroup=None), (mapped,))
            for side, mapped in zip(plan.sides, sides, strict=True)
        ]
        return BroadcastJoinOutput(plan, tuple(tables), tuple(read))

    def _write(self, mapped: MapOutput, moved: Counter[str]) -> None:
        """Run the maps of a side, and count what they moved."""
        record = self.record

        def note(results: list[MapResult]) -> str:
            size = mapped.asked.health().size_bytes
            rows = sum(result.file_rows for result in results)
            moved.update(rows=rows, bytes=size)
            record.rows_in, record.bytes_shuffled = moved["rows"], moved["bytes"]
            read = sum(result.rows_in for result in results)
            return f"{read:,} rows read, {format_bytes(size)} shuffled"

        mapped.write(note)

    def _planned(self, stage: Stage, made: dict[str, StageResult]) -> StagePlan:
        """The plan of a stage, by what the stages before it have made."""
        if not stage.reads:
            return self.plan.plans[stage.name]
        space = replace(self.space, memory_bytes=self.space.memory_bytes // 2)
        inputs = {
            name: made[section.stage].source(name, section.stage, space)
            for name, section in stage.spec.inputs.items()
            if section.stage is not None
        }
        return self.plan.planned(stage, inputs)

    def _sampled(
        self, plan: StagePlan, side: ShuffleInput, read: Sequence[StageOutput]
    ) -> tuple[MapTask, ...]:
        """The map tasks, a range partitioner's with its boundaries."""
        if not side.sample_tasks:
            return side.map_tasks
        samples = self.stages.run(
            "sample",
            side.sample_tasks,
            lambda task, _: self.stages.submit(run_sample, task),
            recovery=SampleRecovery(side.sample_tasks, read) if read else NO_RECOVERY,
        )
        try:
            sample = pa.concat_tables(samples, promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"the keys of the inputs do not go together: {error}; give them the same types"
            ) from error
        spreads = plan.reduce_spec.sorts_rows  # groups and functions want equal keys together
        # The inputs' key columns may be called otherwise, but compare alike.
        keys = side.map_tasks[0].partitioner.sort_keys
        sort_keys = [
            replace(key, column=name) for key, name in zip(keys, sample.column_names, strict=True)
        ]
        boundaries = choose_boundaries(sample, sort_keys, plan.partitions, repeats=spreads)
        maps = len(side.map_tasks) if spreads else None
        # One for all maps of an input, as it goes to a worker once.
        planned = {id(task.partitioner): task.partitioner for task in side.map_tasks}
        partitioners = {
            place: replace(each, boundaries=boundaries, maps=maps)
            for place, each in planned.items()
        }
        return tuple(
            replace(task, partitioner=partitioners[id(task.partitioner)]) for task in side.map_tasks
        )


def _shuffled_for(stage: Stage, made: dict[str, StageResult]) -> list[StageOutput]:
    """The shuffled stages that the maps of a stage read, each once."""
    read = [each for name in sorted(stage.reads) for each in made[name].shuffled]
    return list({id(each): each for each in read}.values())
