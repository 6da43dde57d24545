"""Joins the rows of an input with broadcast tables as they are read, so they are not shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.compute.layout import decode_dictionaries
from mrflight.compute.schemas import empty_batch
from mrflight.shuffle.client.reader import read_partition
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Reader, Split
from mrflight.tasks.cogroup import CoGroup, Rows
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.stage_reader import PartitionSplit, StageReader, check_same_generation
from mrflight.tasks.stage_rows import StagePartition, StageSide
from mrflight.tasks.task_memory import TaskMemory

CurrentPartitions = Mapping[tuple[str, ...], Mapping[int, StagePartition]]
"""The partitions of each stage by their numbers. The ids of its shuffles identify a stage."""


class BroadcastTable(msgspec.Struct, frozen=True):
    """A table that every task reads whole: the only partition of its shuffle."""

    side: StageSide
    partition: StagePartition


@dataclass
class StreamReader(Reader):
    """Reads splits of one input, maps its rows, and joins them with the broadcast tables.

    Each task has its own reader, because it counts rows.
    """

    name: str
    """The name of the input."""
    reader: Reader
    row_map: RowMap | None
    tables: tuple[BroadcastTable, ...]
    cogroup: CoGroup
    task_memory: TaskMemory
    schema: pa.Schema | None
    rows_read: int = 0
    """The rows of the input that were read so far."""

    @property
    def reads_packs(self) -> bool:
        """Delegate to the reader of the input."""
        return self.reader.reads_packs

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the joined rows of a split: at least one batch, which may be empty."""
        mapper = Mapper(self.reader, split, self.row_map)
        mapped = mapper.batches()
        first = next(mapped)
        with ExitStack() as stack:
            tables: dict[str, Rows] = {self.name: (first.schema, chain([first], mapped))}
            for table in self.tables:
                side = table.side
                connections = stack.enter_context(side.shuffle.connections())
                (info,) = table.partition.infos
                rows = read_partition(side.shuffle.key, info, connections)
                tables[side.name] = side.schema, map(decode_dictionaries, rows)
            schema, batches = self.cogroup.apply(tables, self.task_memory)
            yield empty_batch(schema)
            yield from batches
        self.rows_read += mapper.rows_in

    def file_rows(self, rows: int) -> int:
        """Return the count for the rows of the input, since the join changes the number of rows."""
        return self.reader.file_rows(self.rows_read)

    def slice_rows(self) -> int | None:
        """Delegate to the reader of the input."""
        return self.reader.slice_rows()

    def with_bad_rows(self, log: BadRowLog) -> StreamReader:
        """Delegate to the reader of the input."""
        return replace(self, reader=self.reader.with_bad_rows(log))

    def divide(self, split: Split, count: int) -> list[Split]:
        """Delegate to the reader of the input."""
        return self.reader.divide(split, count)


def relocate(reader: Reader, split: Split, now: CurrentPartitions) -> tuple[Reader, Split]:
    """Return a reader and its split with the current locations of the partitions that they read."""
    if isinstance(reader, StreamReader):
        inner, split = relocate(reader.reader, split, now)
        tables = tuple(
            structs.replace(table, partition=now[(table.side.shuffle.id,)][0])
            for table in reader.tables
        )
        return replace(reader, reader=inner, tables=tables), split
    if isinstance(reader, StageReader):
        assert isinstance(split, PartitionSplit), split
        current = now[tuple(side.shuffle.id for side in reader.rows.sides)]
        moved = structs.replace(
            split, partitions=tuple(current[each.partition] for each in split.partitions)
        )
        if split.partition_slice is not None:
            check_same_generation(moved.sliced, split.sliced)
        return reader, moved
    return reader, split
