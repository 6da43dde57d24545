"""The output of a stage in its shuffles, and the tasks of later stages that read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.planner.reduce_tasks import check_slices, split_skewed
from mrflight.planner.stage_plan import StagePlan
from mrflight.scheduler.recovery.writers import AnyShuffleOutput, RunContext, ShuffleOutput
from mrflight.scheduler.stage_runner import Note
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.store.decoded_size import fixed_bytes
from mrflight.sources.base import Source
from mrflight.system.progress import Work
from mrflight.tasks.broadcast_join import BroadcastTable, relocate
from mrflight.tasks.map_output import run_map
from mrflight.tasks.map_task import MapResult, MapTask
from mrflight.tasks.sample_task import SampleTask
from mrflight.tasks.stage_reader import PartitionSplit, StageReader, make_slice_split, make_split
from mrflight.tasks.stage_rows import StagePartition, StageRows, StageSide
from mrflight.tasks.task_memory import TaskMemory

_DECODED_RATIO = 3
"""Bytes in memory per byte of compressed blocks, roughly: 2.6 for lineitem."""


class StageOutput(msgspec.Struct, frozen=True):
    """The shuffles of a stage side by side, and the plan of what is made of their partitions."""

    plan: StagePlan
    sides: tuple[AnyShuffleOutput, ...]

    @property
    def run(self) -> RunContext:
        return self.sides[0].run

    @property
    def shuffled(self) -> tuple[StageOutput, ...]:
        """The outputs that a reader of this one reads from shuffles."""
        return (self,)

    @property
    def schemas(self) -> list[pa.Schema]:
        """The schema of each side's rows. Known once `partitions` has been called."""
        known = [output.schema for output in self.sides if output.schema is not None]
        assert len(known) == len(self.sides), "the partitions were not looked at"
        return known

    def partitions(self) -> list[StagePartition]:
        """Return all partitions, each with what was written to it on every side.

        Later changes of a placement make a recovery stale.
        """
        sides = [output.layout()[1] for output in self.sides]
        return [
            StagePartition(number, tuple(side[number if len(side) > 1 else 0] for side in sides))
            for number in range(max(map(len, sides)))
        ]

    def by_number(self) -> dict[int, StagePartition]:
        """Return `partitions` by their numbers."""
        return {each.partition: each for each in self.partitions()}

    def rows(self, task_memory: TaskMemory) -> StageRows:
        """Return the object that makes the result of partitions in a worker."""
        known = zip(self.sides, self.plan.sides, self.schemas, strict=True)
        sides = (StageSide(side.name, output.shuffle, schema) for output, side, schema in known)
        return StageRows(tuple(sides), self.plan.cogroup, self.plan.reduce_spec, task_memory)

    def source(self, name: str, stage: str, task_memory: TaskMemory) -> Source:
        """Return the result as the input ``name`` of a later stage; ``stage`` is this one's title.

        Its splits can be cut, except for slices of skewed partitions.
        """
        partitions = self.partitions()
        rows = self.rows(task_memory)
        filled = [each for each in partitions if each.rows] or partitions[:1]
        splits = tuple(self._splits(stage, filled))
        size = sum(each.size_bytes for each in filled)
        reader = StageReader(rows, rows.schema)
        return Source(name, reader, (), size, splits, self._expansion(filled), is_intermediate=True)

    def _expansion(self, partitions: list[StagePartition]) -> int:
        """Return the bytes in memory per byte that was sent, roughly.

        It is at least what the columns of fixed width need.
        """
        ratio = 1 if self.plan.compression == "none" else _DECODED_RATIO
        size = sum(each.size_bytes for each in partitions)
        fixed = sum(
            each.infos[number].rows * (fixed_bytes(field.type) or 0.0)
            for number, schema in enumerate(self.schemas)
            for field in schema
            for each in partitions
        )
        return max(ratio, math.ceil(fixed / size)) if size else ratio

    def _splits(self, stage: str, partitions: list[StagePartition]) -> Iterator[PartitionSplit]:
        """Yield splits in the order of the rows; a skewed partition is several splits."""
        sides = self.plan.sliceable_sides(self.schemas)
        skewed = split_skewed(partitions, self.run.runner.workers, sides) if sides else []
        slices = {of: list(each) for of, each in groupby(skewed, attrgetter("partition"))}
        whole: list[StagePartition] = []
        for partition in partitions:
            if partition not in slices:
                whole.append(partition)
                continue
            if whole:
                yield make_split(stage, whole)
                whole = []
            for each in slices[partition]:
                assert each.side_slice is not None, each
                yield make_slice_split(stage, partition, each.side_slice)
        if whole:
            yield make_split(stage, whole)


class BroadcastJoinOutput(msgspec.Struct, frozen=True):
    """A stage whose streamed side is joined with broadcast tables where it is read.

    The tables went through shuffles, and every task reads them whole.
    """

    plan: StagePlan
    tables: tuple[StageOutput, ...]
    """Each has one side and one partition."""
    inputs: tuple[StageOutput, ...]
    """The outputs that the streamed side itself reads from shuffles."""

    @property
    def shuffled(self) -> tuple[StageOutput, ...]:
        """The outputs that a reader of this one reads from shuffles."""
        return (*self.tables, *self.inputs)

    def source(self, name: str, stage: str, task_memory: TaskMemory) -> Source:
        """Return the result as the input ``name``; its splits are those of the streamed side."""
        stream, cogroup = self.plan.stream, self.plan.cogroup
        assert stream is not None, "nothing is broadcast"
        assert cogroup is not None, "tables are broadcast to be joined"
        tables = []
        for table in self.tables:
            (partition,) = table.partitions()
            (side,) = table.rows(task_memory).sides
            tables.append(BroadcastTable(side, partition))
        schemas = {table.side.name: table.side.schema for table in tables}
        schema = None
        if stream.schema is not None:
            schema = cogroup.check({**schemas, stream.source.name: canonical_schema(stream.schema)})
        reader = stream.reader_kind(
            stream.source.name,
            stream.source.reader,
            stream.row_map,
            tuple(tables),
            cogroup,
            task_memory,
            schema,
        )
        return replace(stream.source, name=name, reader=reader, version=None, is_intermediate=True)


StageResult = StageOutput | BroadcastJoinOutput


class MapOutput(ShuffleOutput[MapTask, MapResult]):
    """The shuffle of one side of a stage, whose maps read files or earlier stages."""

    def __init__(
        self,
        run: RunContext,
        shuffle: Shuffle,
        stage: str,
        tasks: Sequence[MapTask],
        inputs: Sequence[StageOutput],
    ) -> None:
        def submit(task: MapTask, attempt: int) -> Future[MapResult]:
            return run.runner.submit(run_map, task, attempt, shuffle, run.writer_id)

        super().__init__(run, shuffle, stage, tasks, submit)
        self._stage_inputs = inputs

    @property
    def inputs(self) -> Sequence[AnyShuffleOutput]:
        return shuffle_outputs_of(self._stage_inputs)

    def refresh(self) -> None:
        """See `relocate_tasks`."""
        self.tasks = relocate_tasks(self.tasks, self._stage_inputs)

    def write(self, note: Note[MapResult] | None = None) -> list[MapResult]:
        """See `ShuffleOutput.write`. Raises InconsistentMapOutputError as `check_slices`."""
        results = super().write(note)
        unsent = (each.unsent_schema for each in results if each.unsent_schema is not None)
        self.unsent_schema = next(map(canonical_schema, unsent), None)
        done = zip(self.tasks, results, strict=True)
        read = [(task.split, result.slice_rows) for task, result in done]
        check_slices(
            (split.sliced, rows)
            for split, rows in read
            if isinstance(split, PartitionSplit) and split.partition_slice is not None
        )
        return results

    def _size_bytes(self, task: MapTask) -> int:
        return task.split.size_bytes

    def _work(self, task: MapTask, result: MapResult) -> Work:
        return Work(result.rows_in, task.split.size_bytes)


def shuffle_outputs_of(stages: Sequence[StageOutput]) -> list[AnyShuffleOutput]:
    """Return the shuffles of all sides of the stages."""
    return [output for stage in stages for output in stage.sides]


ReadingTask = TypeVar("ReadingTask", MapTask, SampleTask)


def relocate_tasks(
    tasks: Sequence[ReadingTask], inputs: Sequence[StageOutput]
) -> list[ReadingTask]:
    """Return the tasks with the current locations of the partitions of ``inputs`` that they read.

    Raises InconsistentMapOutputError as `check_same_generation`.
    """
    now = {
        tuple(output.shuffle.id for output in stage.sides): stage.by_number() for stage in inputs
    }
    moved = []
    for task in tasks:
        reader, split = relocate(task.reader, task.split, now)
        moved.append(replace(task, reader=reader, split=split))
    return moved
