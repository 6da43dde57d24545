"""The tasks that workers run: what each needs, and what it answers.

A task runs whole in one worker process and may be run again: what it leaves
behind counts only once its attempt is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mrflight.functions import FunctionRef
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.layout import plain_batch, plain_schema
from mrflight.shuffle.partitioners import check_sortable
from mrflight.shuffle.reader import read_partition
from mrflight.shuffle.registry import PartitionInfo
from mrflight.shuffle.shuffle import Shuffle
from mrflight.sinks.base import PartFile, PartWriter
from mrflight.sources.base import Reader, Split
from mrflight.workers.mapper import Mapper
from mrflight.workers.partitioning import PartitionerSpec
from mrflight.workers.reducer import Reduction
from mrflight.workers.shuffler import shuffle_batches


@dataclass(frozen=True)
class MapTask:
    """One split of one input: read, mapped, and sent to its partitions."""

    input_name: str
    map_id: int
    reader: Reader
    split: Split
    function: FunctionRef | None
    partitioner: PartitionerSpec
    reduction: Reduction
    """What will be made of the rows: checked against the first of them."""
    compression: str

    @property
    def name(self) -> str:
        return f"map {self.map_id} ({self.input_name}, {self.split.path} from {self.split.start})"


@dataclass(frozen=True)
class MapResult:
    """What a committed map attempt read and wrote."""

    rows_in: int
    rows_out: int
    bytes_out: int


@dataclass(frozen=True)
class SampleTask:
    """A small split whose keys are sampled, for the boundaries of a range partitioner."""

    reader: Reader
    split: Split
    function: FunctionRef | None
    key: tuple[str, ...]
    rows: int

    @property
    def name(self) -> str:
        return f"sample of {self.split.path} from {self.split.start}"


@dataclass(frozen=True)
class ReduceTask:
    """One partition: fetched, reduced, and written as part files."""

    partition: PartitionInfo
    shuffle: Shuffle
    schema: pa.Schema
    reduction: Reduction
    part_writer: PartWriter

    @property
    def name(self) -> str:
        return f"reduce of partition {self.partition.partition}"


@dataclass(frozen=True)
class ReduceResult:
    """What a reduce attempt wrote."""

    rows_out: int
    schema: pa.Schema
    parts: tuple[PartFile, ...]


def run_map(task: MapTask, attempt: int, shuffle: Shuffle) -> MapResult:
    """Run one attempt of a map; its rows are committed when this returns."""
    mapper = Mapper(task.reader, task.split, task.function)
    writer = shuffle.writer(
        task.map_id,
        attempt,
        partitioner=task.partitioner.partitioner(task.map_id),
        compression=task.compression,
    )
    rows_out = shuffle_batches(_checked(task, mapper.batches()), writer)
    return MapResult(mapper.rows_in, rows_out, writer.bytes_written)


def run_sample(task: SampleTask) -> pa.Table:
    """Keys of at most ``task.rows`` rows of the split's first batch, as columns "0", "1", ..."""
    batch = next(Mapper(task.reader, task.split, task.function).batches())
    check_sortable(batch.schema, task.key)
    keys = batch.select(list(task.key))
    plain = plain_batch(keys, plain_schema(keys.schema))
    step = max(1, -(-plain.num_rows // task.rows))
    sampled = plain.take(pa.array(range(0, plain.num_rows, step), pa.int64()))
    return pa.Table.from_batches([sampled]).rename_columns([str(i) for i in range(len(task.key))])


def run_reduce(task: ReduceTask, attempt: int) -> ReduceResult:
    """Run one attempt of a reduce; its part files count once the driver commits them."""
    with Connections() as connections:
        batches = read_partition(task.shuffle.id, task.partition, connections)
        number = task.partition.partition
        schema, results = task.reduction.apply(number, task.schema, batches)
        parts = task.part_writer.write(number, attempt, schema, results)
    return ReduceResult(sum(part.rows for part in parts), schema, tuple(parts))


def _checked(task: MapTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the first batch against what is to come, so that a wrong name fails early."""
    for i, batch in enumerate(batches):
        if i == 0:
            task.partitioner.check(batch.schema)
            task.reduction.check(batch.schema)
        yield batch
