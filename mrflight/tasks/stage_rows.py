"""Reads the result of a stage: fetches its partitions, joins them, and reduces them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.compute.layout import decode_dictionaries
from mrflight.ids import ShuffleKey
from mrflight.shuffle.client.reader import read_partition, read_partitions, read_slice
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.system.shared_payload import SharedPayload
from mrflight.tasks.cogroup import CoGroup, Rows, SlicedTable
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.task_memory import TaskMemory


class StagePartition(NamedTuple):
    """A partition with the rows of every side of a stage."""

    partition: int
    infos: tuple[PartitionInfo, ...]
    """The info of each side, in the order of the sides. A broadcast side has only one partition."""

    @property
    def rows(self) -> int:
        return sum(info.rows for info in self.infos)

    @property
    def size_bytes(self) -> int:
        """The bytes of the rows as they were sent."""
        return sum(info.size_bytes for info in self.infos)


class StageSide(msgspec.Struct, frozen=True):
    """One of the tables of a stage, with its shuffle."""

    name: str
    shuffle: Shuffle
    schema: pa.Schema


class SlicedSide:
    """Reads the sliced side of a partition, and counts the rows of a slice.

    No server knows how many rows a slice has. The driver compares the sum over all slices with the
    rows of the partition. The outer remainder reads all rows, so it does not count them.
    """

    def __init__(self, side_slice: SideSlice) -> None:
        self.side_slice = side_slice
        self.rows_read = 0
        self._rows: Iterator[pa.RecordBatch] = iter(())

    def read(
        self,
        shuffle: ShuffleKey,
        info: PartitionInfo,
        connections: Connections,
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of the slice, or all rows for the outer remainder."""
        part = self.side_slice.partition_slice
        if part is None:
            return read_partition(shuffle, info, connections)
        self._rows = self._count(read_slice(shuffle, info, part, connections))
        return self._rows

    def drain(self) -> None:
        """Count the rows that were not read: a join stops reading once no row can match."""
        for _ in self._rows:
            pass

    def _count(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows_read += batch.num_rows
            yield batch


class StageRows(SharedPayload, msgspec.Struct, frozen=True):
    """Fetches the partitions of a stage and makes the stage's result. Picklable."""

    sides: tuple[StageSide, ...]
    """The sides; several if the stage has a co-group."""
    cogroup: CoGroup | None
    reduce_spec: ReduceSpec
    task_memory: TaskMemory

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the result; None if a function decides it."""
        schemas = {side.name: side.schema for side in self.sides}
        cogrouped = self.cogroup.check(schemas) if self.cogroup else self.sides[0].schema
        return self.reduce_spec.applied_schema(cogrouped)

    @property
    def passes_rows_on(self) -> bool:
        """True if the result is the unchanged rows of the only side."""
        return self.cogroup is None and self.reduce_spec.keeps_rows

    def read(
        self,
        partitions: Sequence[StagePartition],
        sliced: SlicedSide | None = None,
    ) -> Generator[Rows]:
        """Yield the result of each partition. Each must be read before the next one is requested.

        ``sliced`` is the sliced side of the only partition; its count is complete once the result
        has been read. If the rows are passed on unchanged, a column of few distinct strings may be
        a dictionary, although the schema has plain strings: writing a TPC-H lineitem to parquet
        this way takes 233 MB of memory instead of 418.
        """
        with self.sides[0].shuffle.connections() as connections:
            tables = self._tables(partitions, sliced, connections)
            for partition, inputs in zip(partitions, tables, strict=True):
                if not self.passes_rows_on:
                    inputs = {
                        name: (schema, map(decode_dictionaries, rows))
                        for name, (schema, rows) in inputs.items()
                    }
                schema, batches = self._cogroup(inputs, sliced)
                yield self.reduce_spec.apply(partition.partition, schema, batches, self.task_memory)

    def _tables(
        self,
        partitions: Sequence[StagePartition],
        sliced: SlicedSide | None,
        connections: Connections,
    ) -> Iterator[dict[str, Rows]]:
        """Yield the tables of each partition by their names."""
        if len(self.sides) == 1 and sliced is None:
            (side,) = self.sides
            infos = [each.infos[0] for each in partitions]
            for batches in read_partitions(side.shuffle.key, infos, connections):
                yield {side.name: (side.schema, batches)}
            return
        for partition in partitions:
            tables: dict[str, Rows] = {}
            for number, (side, info) in enumerate(zip(self.sides, partition.infos, strict=True)):
                if sliced is not None and sliced.side_slice.side == number:
                    rows = sliced.read(side.shuffle.key, info, connections)
                else:
                    rows = read_partition(side.shuffle.key, info, connections)
                tables[side.name] = side.schema, rows
            yield tables
            if sliced is not None:
                sliced.drain()

    def _cogroup(self, tables: Mapping[str, Rows], sliced: SlicedSide | None) -> Rows:
        if self.cogroup is None:
            return next(iter(tables.values()))
        if sliced is None:
            return self.cogroup.apply(tables, self.task_memory)
        side_slice = sliced.side_slice
        table = SlicedTable(
            self.sides[side_slice.side].name, is_remainder=side_slice.partition_slice is None
        )
        return self.cogroup.apply(tables, self.task_memory, table)
