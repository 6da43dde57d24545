"""Runs the stages of a job in order: sample, map and shuffle each; then reduce or read the last."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import InconsistentMapOutputError, MemoryLimitError, SchemaMismatchError
from mrflight.events.kinds import QueryStage
from mrflight.planner.job_plan import JobPlan
from mrflight.planner.map_plan import ShuffleInput
from mrflight.planner.ranges import with_boundaries
from mrflight.planner.stage_plan import StagePlan
from mrflight.planner.stages import Stage, repartition_stage, with_key_prefix
from mrflight.result import describe_bad_rows
from mrflight.scheduler.job_context import JobContext
from mrflight.scheduler.map_counts import MapCounts
from mrflight.scheduler.recovery.fetch_failures import FetchFailureReporter
from mrflight.scheduler.recovery.protocol import NO_RECOVERY
from mrflight.scheduler.recovery.readers import SampleRecovery
from mrflight.scheduler.recovery.writers import RunContext
from mrflight.scheduler.reduce_stage import ReduceStage
from mrflight.scheduler.rows_reader import RowsReader
from mrflight.scheduler.stage_output import (
    BroadcastJoinOutput,
    MapOutput,
    StageOutput,
    StageResult,
)
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.sinks.parts.base import PartWriter
from mrflight.tasks.map_task import MapResult, MapTask
from mrflight.tasks.part_files import ReduceResult
from mrflight.tasks.runtime_filter import KeyFilter
from mrflight.tasks.sample_task import run_sample
from mrflight.units import format_bytes, format_count


class StageScheduler:
    """Runs all stages of a job, and runs them again if output is lost that cannot be recovered."""

    def __init__(self, plan: JobPlan, context: JobContext, max_runs: int) -> None:
        self._plan = plan
        self._context = context
        self._max_runs = max_runs

    def write(self, part_writer: PartWriter) -> list[ReduceResult]:
        """Run all stages, which leaves part files.

        Returns at least one result, in the order of the partitions.
        """
        for number in range(self._max_runs + 1):
            with self._run_again(number):
                return self._begin(number).write(part_writer)
        raise AssertionError("the last run returns or raises")

    def read(self) -> Generator[pa.RecordBatch]:
        """Run all stages, and yield the rows of the last one: see `RowsReader`.

        That stage only partitions the rows of the result.
        """
        for number in range(self._max_runs + 1):
            with self._run_again(number):
                yield from self._begin(number).read()
                return

    def _begin(self, number: int) -> _StagesRun:
        """Begin a run of all stages."""
        self._context.metrics.timer.begin("map")
        name = f"{self._plan.job_id}-{number}" if number else self._plan.job_id
        return _StagesRun(name, self._plan, self._context)

    @contextmanager
    def _run_again(self, number: int) -> Iterator[None]:
        """Make room for another run if output was lost that this one cannot recover.

        So does a query that one task runs, and that turns out to need more memory than it has: it
        is divided, once.
        """
        try:
            yield
        except MemoryLimitError as error:
            if self._plan.divided is None:
                raise
            self._plan = self._plan.divided()
            self._forget_last_run("the query is divided, and runs again", error)
        except InconsistentMapOutputError as error:
            if number + 1 >= self._max_runs:
                raise
            self._forget_last_run("all maps and reduces run again", error)

    def _forget_last_run(self, action: str, error: Exception) -> None:
        """Say why the stages run again, and drop what they have sent."""
        events = self._context.runner.events
        events.notice_recovery("run_again", action, "the stages of the job", error)
        self._context.shuffles.drop()


class _StagesRun:
    """One run of all stages. It holds the output of those that have run."""

    def __init__(self, name: str, plan: JobPlan, context: JobContext) -> None:
        """``name`` begins the names of the run's shuffles."""
        self._name = name
        self._plan = plan
        self._context = context
        self._run = RunContext(
            context.runner, context.shuffles, FetchFailureReporter(context.deadline)
        )
        self._outputs: dict[str, StageResult] = {}
        self._counts = MapCounts(context.metrics, context.bad_row_files)

    def write(self, part_writer: PartWriter) -> list[ReduceResult]:
        """Run all stages, and reduce the partitions of the last one to part files."""
        context = self._context
        last, of = self._run_stages(), self._plan.stages[-1]
        context.metrics.timer.begin("reduce")
        if isinstance(last, BroadcastJoinOutput):
            of = repartition_stage(of)
            last = self._run_stage(of)
        assert isinstance(last, StageOutput), "a repartition has no broadcast inputs"
        context.metrics.partitions = last.plan.partitions
        memory = self._plan.memory
        reduces = ReduceStage(part_writer, context.task_memory, memory, of.query_stage)
        results = reduces.run(last)
        self._counts.add_read(results)
        return results

    def read(self) -> Generator[pa.RecordBatch]:
        """Run all stages, and read the partitions of the last one."""
        last = self._run_stages()
        self._context.bad_row_files.commit_begins()
        self._context.bad_row_files.keep()
        for bad in describe_bad_rows(self._context.metrics.bad_rows):
            # The caller gets rows and no result.
            self._run.runner.events.notice("bad_rows", f"{bad} skipped", subject=bad)
        assert isinstance(last, StageOutput), "the last stage has no broadcast inputs"
        self._context.metrics.partitions = last.plan.partitions
        self._context.metrics.timer.stop()  # the caller takes as long as it likes
        (output,) = last.sides
        return RowsReader(output, self._context.deadline).batches()

    def _run_stages(self) -> StageResult:
        """Run the maps of all stages; return the output of the last one."""
        for stage in self._plan.stages:
            with with_key_prefix(stage):
                self._outputs[stage.name] = self._run_stage(stage)
        return self._outputs[self._plan.stages[-1].name]

    def _run_stage(self, stage: Stage) -> StageResult:
        """Run the maps of all sides of a stage; its reduces run with the stages that read it."""
        plan = self._plan_stage(stage)
        inputs = self._shuffled_inputs(stage)
        sides = []
        noted: dict[str, KeyFilter | None] = {}
        for number, side in enumerate(plan.sides):
            # Sampling comes first: a shuffle that exists when a server is lost is stale at once.
            tasks = self._with_boundaries(plan, side, inputs)
            if (keys := noted.get(plan.filtered_by.get(side.name, ""))) is not None:
                tasks = tuple(task.tests(keys) for task in tasks)
            parts = [self._name, stage.name, str(number) if plan.cogroup else ""]
            shuffle = self._run.shuffles.create("-".join(filter(None, parts)), side.partitions)
            parts = ["map", stage.title, side.name if plan.cogroup else ""]
            label = " ".join(filter(None, parts))
            output = MapOutput(self._run, shuffle, label, tasks, inputs)
            output.runs = self._query_stage(stage, tasks)
            output.refresh()  # the inputs may have moved since they were planned
            noted[side.name] = KeyFilter.united(self._write(output))
            sides.append(output)
        if plan.stream is None:
            return StageOutput(plan, tuple(sides))
        tables = [
            StageOutput(replace(plan, sides=(side,), stream=None, cogroup=None), (output,))
            for side, output in zip(plan.sides, sides, strict=True)
        ]
        return BroadcastJoinOutput(plan, tuple(tables), tuple(inputs))

    def _query_stage(self, stage: Stage, tasks: Sequence[MapTask]) -> QueryStage | None:
        """Return the stage of a query whose result the maps of a stage read, and so make."""
        names = {task.input_name for task in tasks}
        read = {stage.spec.inputs[name].stage for name in names if name in stage.spec.inputs}
        found = [each.query_stage for each in self._plan.stages if {each.name} == read]
        return found[0] if found else None

    def _write(self, output: MapOutput) -> list[KeyFilter]:
        """Run the maps of a side, and add up what they read and shuffled.

        Returns the keys that they noted.
        """

        def note(results: list[MapResult]) -> str:
            size = output.clamped.health().size_bytes
            self._counts.add(output.tasks, results, size)
            self._context.shuffles.samples.take_after_maps(size)
            read = sum(result.rows_in for result in results)
            return f"{format_count(read, 'row')} read, {format_bytes(size)} shuffled"

        results = output.write(note)
        return [each.keys for each in results if each.keys is not None]

    def _plan_stage(self, stage: Stage) -> StagePlan:
        """Return the plan of a stage, made with the actual output of the stages that it reads."""
        if not stage.reads:
            return self._plan.plans[stage.name]
        task_memory = self._context.task_memory
        task_memory = replace(task_memory, memory_bytes=task_memory.memory_bytes // 2)
        titles = {each.name: each.title for each in self._plan.stages}
        inputs = {
            name: self._outputs[section.stage].source(name, titles[section.stage], task_memory)
            for name, section in stage.spec.inputs.items()
            if section.stage is not None
        }
        return self._plan.plan_stage(stage, inputs)

    def _shuffled_inputs(self, stage: Stage) -> list[StageOutput]:
        """Return the outputs that the maps of a stage read from shuffles, each once."""
        read = [each for name in sorted(stage.reads) for each in self._outputs[name].shuffled]
        return list({id(each): each for each in read}.values())

    def _with_boundaries(
        self, plan: StagePlan, side: ShuffleInput, inputs: Sequence[StageOutput]
    ) -> tuple[MapTask, ...]:
        """Return the map tasks; a range partitioner gets boundaries from a sample of the keys."""
        if not side.sample_tasks:
            return side.map_tasks
        sample = self._sample_keys(side, inputs)
        # Ranges of sorted rows may split equal keys; groups and functions need them together.
        return with_boundaries(side, sample, repeats=plan.reduce_spec.sorts_rows)

    def _sample_keys(self, side: ShuffleInput, inputs: Sequence[StageOutput]) -> pa.Table:
        """Run the sample tasks; return the keys that they drew."""
        runner = self._run.runner
        recovery = SampleRecovery(side.sample_tasks, inputs) if inputs else NO_RECOVERY
        samples = runner.run(
            "sample",
            TaskSetSpec(
                side.sample_tasks,
                lambda task, _: runner.submit(run_sample, task),
                recovery=recovery,
            ),
        )
        try:
            return pa.concat_tables(samples, promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"the key types of the inputs do not match: {error}; give them the same types"
            ) from error
