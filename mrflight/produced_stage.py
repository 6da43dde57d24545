"""A stage of a job once it is shuffled: where its partitions are, on every side of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mrflight.job_run import JobRun
from mrflight.plan import StagePlan
from mrflight.produced import AnyProduced, Produced
from mrflight.shuffle.shuffle import Shuffle
from mrflight.sources.base import Source
from mrflight.workers.stage_rows import (
    PartitionSplit,
    StagePartition,
    StageReader,
    StageRows,
    StageSide,
    split_of,
)
from mrflight.workers.tasks import MapResult, MapTask, run_map
from mrflight.workers.workspace import Workspace

_ENCODED = 3
"""What a byte of compressed blocks is in memory, roughly: of lineitem's 2.6."""


@dataclass(frozen=True)
class ProducedStage:
    """The shuffles of a stage, side by side, and what is made of them."""

    plan: StagePlan
    sides: tuple[AnyProduced, ...]

    @property
    def run(self) -> JobRun:
        return self.sides[0].run

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
        infos = [produced.layout()[1] for produced in self.sides]
        return [StagePartition(of_one) for of_one in zip(*infos, strict=True)]

    def by_number(self) -> dict[int, StagePartition]:
        """The same by their numbers."""
        return {each.partition: each for each in self.partitions()}

    def rows(self, space: Workspace) -> StageRows:
        """What makes the result of partitions, in a worker."""
        known = zip(self.sides, self.plan.sides, self.schemas, strict=True)
        sides = (StageSide(side.name, produced.shuffle, schema) for produced, side, schema in known)
        return StageRows(tuple(sides), self.plan.meeting, self.plan.reduction, space)

    def source(self, name: str, stage: str, space: Workspace) -> Source:
        """The result as the input ``name`` of a later stage; one split, that can be cut."""
        partitions = self.partitions()
        rows = self.rows(space)
        filled = [each for each in partitions if each.rows] or partitions[:1]
        split = split_of(stage, filled)
        expansion = 1 if self.plan.compression == "none" else _ENCODED
        reader = StageReader(rows, rows.schema)
        return Source(name, reader, (), split.size_bytes, (split,), expansion, is_made=True)


class Mapped(Produced[MapTask, MapResult]):
    """The shuffle of one side of a stage: some of its maps read earlier stages."""

    def __init__(
        self,
        run: JobRun,
        shuffle: Shuffle,
        stage: str,
        tasks: Sequence[MapTask],
        read: Sequence[ProducedStage],
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
    def reads(self) -> Sequence[AnyProduced]:
        return [produced for stage in self._read for produced in stage.sides]

    def refresh(self) -> None:
        """Read the partitions of earlier stages where they are now."""
        now = {
            tuple(produced.shuffle.id for produced in stage.sides): stage.by_number()
            for stage in self._read
        }
        for number, task in enumerate(self.tasks):
            if not isinstance(task.reader, StageReader):
                continue
            assert isinstance(task.split, PartitionSplit), task.split
            of = now[tuple(side.shuffle.id for side in task.reader.rows.sides)]
            partitions = tuple(of[each.partition] for each in task.split.partitions)
            self.tasks[number] = replace(task, split=replace(task.split, partitions=partitions))
