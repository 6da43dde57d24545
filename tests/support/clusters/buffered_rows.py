"""Rows that are placed in partitions, and buffers of both forms that hold them."""

from __future__ import annotations

import pyarrow as pa

from mrflight.shuffle.client import partition_buffers as module
from mrflight.shuffle.client.partition_buffers import (
    PartitionBuffers,
    ScatteredBuffers,
    SlicedBuffers,
    partition_buffers,
)


def make(
    form: str,
    schema: pa.Schema,
    partitions: int,
    block_bytes: int = module.BLOCK_BYTES,
    budget_bytes: int = module.BUFFER_BYTES,
) -> PartitionBuffers:
    if form == "sliced":
        return SlicedBuffers(partitions, block_bytes, budget_bytes)
    buffers = partition_buffers(schema, partitions, block_bytes, budget_bytes)
    assert isinstance(buffers, ScatteredBuffers)
    return buffers


def placed(*ids: int) -> pa.Int32Array:
    return pa.array(ids, pa.int32())


def integers(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(rows), pa.int64())})
