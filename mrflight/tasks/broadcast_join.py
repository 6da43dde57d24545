"""Rows that meet small tables where they are read, instead of going to a partition by their key."""

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
from mrflight.shuffle.wire.connections import Connections
from mrflight.sources.base import Reader, Split
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.stage_rows import (
    CoGroup,
    PartitionSplit,
    Rows,
    StagePartition,
    StageReader,
    StageSide,
    check_same_generation,
)
from mrflight.tasks.task_memory import TaskMemory

Now = Mapping[tuple[str, ...], Mapping[int, StagePartition]]
"""The partitions of stages by their numbers; a stage is told by the ids of its shuffles."""


class BroadcastTable(msgspec.Struct, frozen=True):
    """A table that every task reads whole: the only partition of its shuffle."""

    side: StageSide
    partition: StagePartition


@dataclass
class StreamReader(Reader):
    """Reads splits of one input; its rows, as they are mapped, meet the broadcast tables.

    It counts, so that every task has its own.
    """

    name: str
    """Of the input."""
    reader: Reader
    row_map: RowMap | None
    tables: tuple[BroadcastTable, ...]
    cogroup: CoGroup
    task_memory: TaskMemory
    schema: pa.Schema | None
    rows_read: int = 0
    """Of the input, until now."""

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """What is made of the split's rows; at least a batch, which may be empty."""
        mapper = Mapper(self.reader, split, self.row_map)
        mapped = mapper.batches()
        first = next(mapped)
        with ExitStack() as stack:
            tables: dict[str, Rows] = {self.name: (first.schema, chain([first], mapped))}
            for table in self.tables:
                side = table.side
                connections = stack.enter_context(Connections(side.shuffle.timeouts))
                (info,) = table.partition.infos
                rows = read_partition(side.shuffle.id, info, connections)
                tables[side.name] = side.schema, map(decode_dictionaries, rows)
            schema, batches = self.cogroup.apply(tables, self.task_memory)
            yield empty_batch(schema)
            yield from batches
        self.rows_read += mapper.rows_in

    def file_rows(self, rows: int) -> int:
        """Of those of its input: what is made of them may be fewer, or more."""
        return self.reader.file_rows(self.rows_read)

    def share_rows(self) -> int | None:
        """As its input's own reader has them."""
        return self.reader.share_rows()

    def pieces(self, split: Split, count: int) -> list[Split]:
        """As the input's own reader has them."""
        return self.reader.pieces(split, count)


def as_now(reader: Reader, split: Split, now: Now) -> tuple[Reader, Split]:
    """A reader and its split with the partitions that they read where they are now."""
    if isinstance(reader, StreamReader):
        inner, split = as_now(reader.reader, split, now)
        tables = tuple(
            structs.replace(table, partition=now[(table.side.shuffle.id,)][0])
            for table in reader.tables
        )
        return replace(reader, reader=inner, tables=tables), split
    if isinstance(reader, StageReader):
        assert isinstance(split, PartitionSplit), split
        of = now[tuple(side.shuffle.id for side in reader.rows.sides)]
        moved = structs.replace(
            split, partitions=tuple(of[each.partition] for each in split.partitions)
        )
        if split.partition_slice is not None:
            check_same_generation(moved.sliced, split.sliced)
        return reader, moved
    return reader, split
