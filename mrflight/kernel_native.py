"""The kernel in Rust: describes key columns to it and allocates what it fills.

No value passes through Python: the columns go over as the buffers they lie
in, and the answers come back in buffers of Arrow's own memory pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from mrflight import _kernel
from mrflight.key_types import layout


class Column(NamedTuple):
    """An array, as the kernel reads it (``kernel/src/column.rs``)."""

    layout: str
    width: int
    rows: int
    first: int
    buffers: list[pa.Buffer | None]
    children: list[Column]


def hash_rows(columns: Sequence[pa.Array]) -> pa.UInt64Array:
    rows = len(columns[0])
    hashes = pa.allocate_buffer(8 * rows)
    _kernel.hash_rows([_describe(column) for column in columns], hashes)
    return _array(pa.uint64(), rows, hashes)


def partition_ids(columns: Sequence[pa.Array], partitions: int) -> pa.Int32Array:
    rows = len(columns[0])
    ids = pa.allocate_buffer(4 * rows)
    _kernel.partition_ids([_describe(column) for column in columns], partitions, ids)
    return _array(pa.int32(), rows, ids)


def place(columns: Sequence[pa.Array], partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    rows = len(columns[0])
    order, offsets = pa.allocate_buffer(4 * rows), pa.allocate_buffer(8 * (partitions + 1))
    _kernel.place_rows([_describe(column) for column in columns], order, offsets)
    return _array(pa.uint32(), rows, order), _array(pa.int64(), partitions + 1, offsets)


def order_by_partition(ids: pa.Int32Array, partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    rows = len(ids)
    order, offsets = pa.allocate_buffer(4 * rows), pa.allocate_buffer(8 * (partitions + 1))
    _kernel.order_rows(_describe(ids), order, offsets)
    return _array(pa.uint32(), rows, order), _array(pa.int64(), partitions + 1, offsets)


def _array(type_: pa.DataType, rows: int, values: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(type_, rows, [None, values], null_count=0)


def _describe(array: pa.Array) -> Column:
    if isinstance(array, pa.ExtensionArray):
        return _describe(array.storage)
    found = layout(array.type)
    if found is None:
        raise AssertionError(f"{array.type} should have been refused before")
    buffers, children = [], []
    if found.name == "dictionary":
        children = [_describe(array.indices), _describe(array.dictionary)]
    elif found.name == "runs":
        children = [_describe(array.run_ends), _describe(array.values)]
    else:
        buffers = array.buffers()
    return Column(*found, len(array), array.offset, buffers, children)
