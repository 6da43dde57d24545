"""The task of a partial aggregate: aggregates a slice of a skewed partition for its reduce."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from mrflight.compute.layout import decode_dictionaries
from mrflight.shuffle.client.partitioners import OnePartitioner
from mrflight.shuffle.client.reader import read_slice
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.tasks.map_output import shuffle_batches
from mrflight.tasks.map_task import WriteLimits
from mrflight.tasks.operators.combiner import combine_partial_rows
from mrflight.tasks.reducer import ReduceSpec


class PartialAggregateTask(msgspec.Struct, frozen=True):
    """Aggregates a slice of a partition, and sends the result to the partition of another shuffle.

    The rows of the partition are partial aggregates. ``output`` is the other shuffle.
    """

    info: PartitionInfo
    partition_slice: PartitionSlice
    shuffle: Shuffle
    schema: pa.Schema
    reduce_spec: ReduceSpec
    output: Shuffle
    map_id: int
    """The map of ``output``: slices are in the order of the partition's rows."""
    limits: WriteLimits

    @property
    def name(self) -> str:
        return (
            f"partial aggregate of slice {self.partition_slice} of partition {self.info.partition}"
        )


def run_partial_aggregate(task: PartialAggregateTask, attempt: int, writer_id: str) -> int:
    """Run one attempt of a partial aggregate, and return the number of rows that it read.

    When this returns, the rows that it sent are committed.
    """
    plan = task.reduce_spec.partials(task.schema)
    assert plan is not None, "the driver slices partial rows only"
    writer = task.output.writer(
        task.map_id,
        attempt,
        partitioner=OnePartitioner(task.info.partition, task.output.partitions),
        compression=task.limits.compression,
        buffer_bytes=task.limits.writer_bytes,
        writer_id=writer_id,
    )
    rows_in = 0

    def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal rows_in
        for batch in batches:
            rows_in += batch.num_rows
            yield batch

    with task.shuffle.connections() as connections:
        sent = read_slice(task.shuffle.key, task.info, task.partition_slice, connections)
        rows = count_rows(map(decode_dictionaries, sent))
        shuffle_batches(combine_partial_rows(plan, rows, task.limits.combiner_bytes), writer)
    return rows_in
