"""What a stage makes of its partitions: rows for part files, or for the maps of another stage."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import decode_dictionaries
from mrflight.compute.schemas import empty_batch
from mrflight.errors import InconsistentMapOutputError
from mrflight.shuffle.client.reader import read_partition, read_partitions, read_slice
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.sources.base import Reader, Split
from mrflight.system.in_common import InCommon
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.side_slice import Portion
from mrflight.tasks.task_memory import TaskMemory

Rows = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""A table whose rows come once, batch by batch."""


class SharedTable(NamedTuple):
    """The table of which several tasks each have a share, as one of them is told of it."""

    name: str
    is_rest: bool
    """Whether what is wanted is what the shares leave out, of all of the table."""


class CoGroup(Protocol):
    """Makes one table of the tables of a partition. Picklable."""

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The schema of what is made of tables of these names; raises JobError."""

    def shared(self, schemas: Mapping[str, pa.Schema]) -> Mapping[str, bool]:
        """The tables that tasks can each have a share of, with all of the others. As `check`.

        And of each whether the results for all shares leave a rest, which one more task makes.
        """

    def apply(
        self, tables: Mapping[str, Rows], space: TaskMemory, shared: SharedTable | None = None
    ) -> Rows:
        """The rows; files in the workspace are removed when they end or are closed.

        Those for all shares of ``shared``, and for the rest where they leave one, are those of
        all of its rows, in the same schema.
        """


class StagePartition(NamedTuple):
    """A partition of every side of a stage."""

    partition: int
    infos: tuple[PartitionInfo, ...]
    """In the order of the sides; the only one of a side that is broadcast."""

    @property
    def rows(self) -> int:
        return sum(info.rows for info in self.infos)

    @property
    def size_bytes(self) -> int:
        """As they were sent."""
        return sum(info.size_bytes for info in self.infos)


class StageSide(msgspec.Struct, frozen=True):
    """One of the tables of a stage, and the shuffle that it went through."""

    name: str
    shuffle: Shuffle
    schema: pa.Schema


class SharedSide:
    """The side of a partition that is shared, and the portion that is read of it.

    The rows of a share are counted, as no server knows how many it has: whoever knows those of all
    shares compares. Those of the rest are all, and are not.
    """

    def __init__(self, portion: Portion) -> None:
        self.portion = portion
        self.rows_read = 0
        self._rows: Iterator[pa.RecordBatch] = iter(())

    def read(
        self,
        shuffle_id: str,
        info: PartitionInfo,
        connections: Connections,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the share, or all."""
        share = self.portion.share
        if share is None:
            return read_partition(shuffle_id, info, connections)
        self._rows = self._counted(read_slice(shuffle_id, info, share, connections))
        return self._rows

    def read_on(self) -> None:
        """Count what nobody wanted: a join needs no rows that can meet none."""
        for _ in self._rows:
            pass

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows_read += batch.num_rows
            yield batch


class StageRows(InCommon, msgspec.Struct, frozen=True):
    """Fetches the partitions of a stage, and makes its result of them. Picklable."""

    sides: tuple[StageSide, ...]
    """One, unless tables meet."""
    cogroup: CoGroup | None
    reduce_spec: ReduceSpec
    space: TaskMemory

    @property
    def schema(self) -> pa.Schema | None:
        """Of the result; None where a function will say it."""
        schemas = {side.name: side.schema for side in self.sides}
        met = self.cogroup.check(schemas) if self.cogroup else self.sides[0].schema
        return self.reduce_spec.made_schema(met)

    @property
    def passes_rows_on(self) -> bool:
        """Whether the result is the rows of the only side, as they were sent."""
        return self.cogroup is None and self.reduce_spec.keeps_rows

    def of(
        self,
        partitions: Sequence[StagePartition],
        shared: SharedSide | None = None,
    ) -> Generator[Rows]:
        """The result of each partition, to be used up before the next is asked for.

        ``shared`` is of the only partition; it has been counted once that is used up. Where
        the rows are only passed on, a column of few strings may come as a dictionary, whatever the
        schema says: written to parquet like this, a TPC-H lineitem takes 233 MB of memory instead
        of 418.
        """
        with Connections(self.sides[0].shuffle.timeouts) as connections:
            tables = self._tables(partitions, shared, connections)
            for partition, of_partition in zip(partitions, tables, strict=True):
                if not self.passes_rows_on:
                    of_partition = {
                        name: (schema, map(decode_dictionaries, rows))
                        for name, (schema, rows) in of_partition.items()
                    }
                schema, batches = self._met(of_partition, shared)
                yield self.reduce_spec.apply(partition.partition, schema, batches, self.space)

    def _tables(
        self,
        partitions: Sequence[StagePartition],
        shared: SharedSide | None,
        connections: Connections,
    ) -> Iterator[dict[str, Rows]]:
        """Of each partition the tables by their names."""
        if len(self.sides) == 1 and shared is None:
            (side,) = self.sides
            infos = [each.infos[0] for each in partitions]
            for batches in read_partitions(side.shuffle.id, infos, connections):
                yield {side.name: (side.schema, batches)}
            return
        for partition in partitions:
            tables: dict[str, Rows] = {}
            for number, (side, info) in enumerate(zip(self.sides, partition.infos, strict=True)):
                if shared is not None and shared.portion.side == number:
                    rows = shared.read(side.shuffle.id, info, connections)
                else:
                    rows = read_partition(side.shuffle.id, info, connections)
                tables[side.name] = side.schema, rows
            yield tables
            if shared is not None:
                shared.read_on()

    def _met(self, tables: Mapping[str, Rows], shared: SharedSide | None) -> Rows:
        if self.cogroup is None:
            return next(iter(tables.values()))
        if shared is None:
            return self.cogroup.apply(tables, self.space)
        portion = shared.portion
        table = SharedTable(self.sides[portion.side].name, is_rest=portion.share is None)
        return self.cogroup.apply(tables, self.space, table)


class PartitionSplit(Split, frozen=True):
    """Some partitions of a stage, or a portion of one, for a map of the next one."""

    partitions: tuple[StagePartition, ...] = ()
    portion: Portion | None = None

    @property
    def share(self) -> PartitionSlice | None:
        """None where it is of whole partitions."""
        return self.portion.share if self.portion else None

    @property
    def shared(self) -> PartitionInfo:
        """What the share is of."""
        assert self.portion is not None, self
        return self.partitions[0].infos[self.portion.side]

    def cut(self, count: int) -> list[Split]:
        """At most ``count`` splits of neighbours, as many partitions in each; a portion is one."""
        if self.portion is not None:
            return [self]
        total = len(self.partitions)
        count = max(1, min(count, total))
        bounds = [total * number // count for number in range(count + 1)]
        return [
            split_of(self.path, self.partitions[start:stop]) for start, stop in pairwise(bounds)
        ]


def split_of(stage: str, partitions: Sequence[StagePartition]) -> PartitionSplit:
    """Neighbouring partitions of a stage as one split."""
    first, last = partitions[0].partition, partitions[-1].partition
    size = sum(each.size_bytes for each in partitions)
    return PartitionSplit(stage, first, last + 1, size, partitions=tuple(partitions))


def portion_of(stage: str, partition: StagePartition, portion: Portion) -> PartitionSplit:
    """A portion of a partition as a split."""
    split = split_of(stage, [partition])
    size = split.size_bytes // (portion.shares if portion.share else 1)
    return replace(split, size_bytes=size, portion=portion)


def check_cut_alike(now: PartitionInfo, then: PartitionInfo) -> None:
    """Raise InconsistentMapOutputError where a partition was written again since ``then``.

    Its blocks are others, so that its shares are not those of which some have been sent already.
    """
    if now.generation != then.generation:
        raise InconsistentMapOutputError(
            f"partition {now.partition} was lost while its shares were sent on"
        )


@dataclass
class StageReader(Reader):
    """Reads the result of a stage as the input of another one.

    It counts, so that every task has its own.
    """

    rows: StageRows
    schema: pa.Schema | None
    of_shares: int | None = 0
    """Rows that it has read; None until it has read all."""

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows partition by partition; of each at least a batch, which may be empty."""
        rows = self.read_encoded(split)
        return map(decode_dictionaries, rows) if self.rows.passes_rows_on else rows

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        """See `Reader.read_encoded`."""
        assert isinstance(split, PartitionSplit), split
        shared = SharedSide(split.portion) if split.portion else None
        if shared is not None:
            self.of_shares = None
        for schema, batches in self.rows.of(split.partitions, shared):
            yield empty_batch(schema)
            yield from batches
        if shared is not None:
            self.of_shares = shared.rows_read

    def file_rows(self, rows: int) -> int:
        """None: they were counted where they were read."""
        return 0

    def share_rows(self) -> int | None:
        """See `Reader.share_rows`."""
        return self.of_shares
