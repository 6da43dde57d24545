"""A stage of a job once it is shuffled, and the tasks of later stages that read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.planner.reduce_tasks import check_shares, split_skewed
from mrflight.planner.stage_plan import StagePlan
from mrflight.scheduler.map_output import AnyShuffleOutput, PlacementRecovery, ShuffleOutput
from mrflight.scheduler.recovery import Resubmit, Stop
from mrflight.scheduler.run_context import RunContext
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.store.decoded_size import fixed_bytes
from mrflight.sources.base import Source
from mrflight.tasks.broadcast_join import BroadcastTable, StreamReader, as_now
from mrflight.tasks.stage_rows import (
    PartitionSplit,
    StagePartition,
    StageReader,
    StageRows,
    StageSide,
    portion_of,
    split_of,
)
from mrflight.tasks.task_memory import Workspace
from mrflight.tasks.tasks import MapResult, MapTask, SampleTask, run_map

_ENCODED = 3
"""What a byte of compressed blocks is in memory, roughly: of lineitem's 2.6."""


class StageOutput(msgspec.Struct, frozen=True):
    """The shuffles of a stage, side by side, and what is made of them."""

    plan: StagePlan
    sides: tuple[AnyShuffleOutput, ...]

    @property
    def run(self) -> RunContext:
        return self.sides[0].run

    @property
    def shuffled(self) -> tuple[StageOutput, ...]:
        """What whoever reads it reads."""
        return (self,)

    @property
    def schemas(self) -> list[pa.Schema]:
        """Of the shuffled rows of each side, once `partitions` were asked for."""
        known = [produced.schema for produced in self.sides if produced.schema is not None]
        assert len(known) == len(self.sides), "the partitions were not looked at"
        return known

    def partitions(self) -> list[StagePartition]:
        """All of them, each with what was written to it on every side.

        What changes of them from now on is news.
        """
        sides = [produced.layout()[1] for produced in self.sides]
        return [
            StagePartition(number, tuple(side[number if len(side) > 1 else 0] for side in sides))
            for number in range(max(map(len, sides)))
        ]

    def by_number(self) -> dict[int, StagePartition]:
        """The same by their numbers."""
        return {each.partition: each for each in self.partitions()}

    def rows(self, space: Workspace) -> StageRows:
        """What makes the result of partitions, in a worker."""
        known = zip(self.sides, self.plan.sides, self.schemas, strict=True)
        sides = (StageSide(side.name, produced.shuffle, schema) for produced, side, schema in known)
        return StageRows(tuple(sides), self.plan.cogroup, self.plan.reduce_spec, space)

    def source(self, name: str, stage: str, space: Workspace) -> Source:
        """The result as the input ``name`` of a later stage.

        Its splits can be cut, but for those that are portions of heavy partitions.
        """
        partitions = self.partitions()
        rows = self.rows(space)
        filled = [each for each in partitions if each.rows] or partitions[:1]
        splits = tuple(self._splits(stage, filled))
        size = sum(each.size_bytes for each in filled)
        reader = StageReader(rows, rows.schema)
        return Source(name, reader, (), size, splits, self._expansion(filled), is_made=True)

    def _expansion(self, partitions: list[StagePartition]) -> int:
        """What a byte of them is in memory, roughly: no less than what is as long in every row."""
        encoded = 1 if self.plan.compression == "none" else _ENCODED
        size = sum(each.size_bytes for each in partitions)
        fixed = sum(
            each.infos[number].rows * (fixed_bytes(field.type) or 0.0)
            for number, schema in enumerate(self.schemas)
            for field in schema
            for each in partitions
        )
        return max(encoded, math.ceil(fixed / size)) if size else encoded

    def _splits(self, stage: str, partitions: list[StagePartition]) -> Iterator[PartitionSplit]:
        """Those of a stage in the order of its rows."""
        sides = self.plan.shared_sides(self.schemas)
        planned = split_skewed(partitions, self.run.stages.workers, sides) if sides else []
        portions = {of: list(each) for of, each in groupby(planned, attrgetter("partition"))}
        whole: list[StagePartition] = []
        for partition in partitions:
            if partition not in portions:
                whole.append(partition)
                continue
            if whole:
                yield split_of(stage, whole)
                whole = []
            for each in portions[partition]:
                assert each.portion is not None, each
                yield portion_of(stage, partition, each.portion)
        if whole:
            yield split_of(stage, whole)


class BroadcastJoinOutput(msgspec.Struct, frozen=True):
    """A stage whose stream meets tables that went through shuffles, which everyone reads whole."""

    plan: StagePlan
    tables: tuple[StageOutput, ...]
    """Each of one side and one partition."""
    read: tuple[StageOutput, ...]
    """What the stream itself reads."""

    @property
    def shuffled(self) -> tuple[StageOutput, ...]:
        """What whoever reads it reads."""
        return (*self.tables, *self.read)

    def source(self, name: str, stage: str, space: Workspace) -> Source:
        """See `StageOutput.source`; the splits are those of the stream."""
        stream, cogroup = self.plan.stream, self.plan.cogroup
        assert stream is not None, "nothing is broadcast"
        assert cogroup is not None, "nothing is broadcast but to meet others"
        tables = []
        for table in self.tables:
            (partition,) = table.partitions()
            (side,) = table.rows(space).sides
            tables.append(BroadcastTable(side, partition))
        schemas = {table.side.name: table.side.schema for table in tables}
        schema = None
        if stream.schema is not None:
            schema = cogroup.check({**schemas, stream.source.name: canonical_schema(stream.schema)})
        reader = StreamReader(
            stream.source.name,
            stream.source.reader,
            stream.row_map,
            tuple(tables),
            cogroup,
            space,
            schema,
        )
        return replace(stream.source, name=name, reader=reader, version=None, is_made=True)


StageResult = StageOutput | BroadcastJoinOutput


class MapOutput(ShuffleOutput[MapTask, MapResult]):
    """The shuffle of one side of a stage: some of its maps read earlier stages."""

    def __init__(
        self,
        run: RunContext,
        shuffle: Shuffle,
        stage: str,
        tasks: Sequence[MapTask],
        read: Sequence[StageOutput],
    ) -> None:
        super().__init__(
            run,
            shuffle,
            stage,
            tasks,
            lambda task, attempt: run.stages.submit(run_map, task, attempt, shuffle, run.writer_id),
        )
        self._read = read

    @property
    def reads(self) -> Sequence[AnyShuffleOutput]:
        return _sides_of(self._read)

    def refresh(self) -> None:
        """Read the partitions of earlier stages where they are now.

        InconsistentMapOutputError as `check_cut_alike`.
        """
        self.tasks = _as_now(self.tasks, self._read)

    def write(
        self, note: Callable[[list[MapResult]], str] = lambda results: f"{len(results)} done"
    ) -> list[MapResult]:
        """See `ShuffleOutput.write`; InconsistentMapOutputError as `check_shares`."""
        results = super().write(note)
        done = zip(self.tasks, results, strict=True)
        read = [(task.split, result.share_rows) for task, result in done]
        check_shares(
            (split.shared, rows)
            for split, rows in read
            if isinstance(split, PartitionSplit) and split.share is not None
        )
        return results


class SampleRecovery(PlacementRecovery[SampleTask]):
    """Mends samples of what earlier stages made: they read it again, once it is all there."""

    def __init__(self, tasks: Sequence[SampleTask], read: Sequence[StageOutput]) -> None:
        super().__init__(_sides_of(read))
        self._tasks = list(tasks)
        self._read = read

    def _read_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        return self._uses

    def _anew(
        self, unfinished: Sequence[int], stop: Stop, *, is_told: bool
    ) -> Resubmit[SampleTask]:
        stop(unfinished)
        for produced in self._uses:
            produced.repair()
        self._tasks = _as_now(self._tasks, self._read)
        return {number: self._tasks[number] for number in unfinished}


def _sides_of(stages: Sequence[StageOutput]) -> list[AnyShuffleOutput]:
    return [produced for stage in stages for produced in stage.sides]


ReadingTask = TypeVar("ReadingTask", MapTask, SampleTask)


def _as_now(tasks: Sequence[ReadingTask], read: Sequence[StageOutput]) -> list[ReadingTask]:
    """The tasks, which read partitions of earlier stages where they are now."""
    now = {
        tuple(produced.shuffle.id for produced in stage.sides): stage.by_number() for stage in read
    }
    moved = []
    for task in tasks:
        reader, split = as_now(task.reader, task.split, now)
        moved.append(replace(task, reader=reader, split=split))
    return moved
