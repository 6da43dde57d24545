"""Passes key columns to the kernel in Rust, and allocates the buffers that it fills.

No value goes through Python. Columns are passed as their buffers, and results come back in buffers
of Arrow's own memory pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from mrflight import _kernel
from mrflight.compute.key_types import Layout, layout

_INTEGERS = {"signed", "unsigned"}
_MAX_DIGITS = 38
_SCATTERED = {"null", "bool", "signed", "unsigned", "float", "decimal", "fixed"}


class Column(NamedTuple):
    """An array as the kernel reads it (``kernel/src/column.rs``)."""

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


def order_by_partition(ids: pa.Int32Array, partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    rows = len(ids)
    order, offsets = pa.allocate_buffer(4 * rows), pa.allocate_buffer(8 * (partitions + 1))
    _kernel.order_rows(_describe(ids), order, offsets)
    return _array(pa.uint32(), rows, order), _array(pa.int64(), partitions + 1, offsets)


def rank_bytes(column: pa.Array) -> pa.UInt32Array:
    rows = len(column)
    ranks = pa.allocate_buffer(4 * rows)
    _kernel.rank_bytes(_describe(column), ranks)
    return _array(pa.uint32(), rows, ranks)


def number_distinct(values: pa.UInt64Array) -> tuple[pa.Int32Array, pa.UInt32Array]:
    rows = len(values)
    numbers, firsts = pa.allocate_buffer(4 * rows), pa.allocate_buffer(4 * rows)
    count = _kernel.number_distinct(_describe(values), numbers, firsts)
    return _array(pa.int32(), rows, numbers), _array(pa.uint32(), count, firsts)


def number_keys(columns: Sequence[pa.Array]) -> tuple[pa.Int32Array, pa.UInt32Array] | None:
    if any(_appended_layout(column.type) is None for column in columns):
        return None
    rows = len(columns[0])
    numbers, firsts = pa.allocate_buffer(4 * rows), pa.allocate_buffer(4 * rows)
    count = _kernel.number_keys([_describe(column) for column in columns], numbers, firsts)
    if count is None:
        return None
    return _array(pa.int32(), rows, numbers), _array(pa.uint32(), count, firsts)


def sum_groups(values: pa.Array, numbers: pa.Int32Array, groups: int) -> pa.Array | None:
    kind = values.type
    is_decimal = types.is_decimal128(kind)
    sums = pa.allocate_buffer((16 if is_decimal else 8) * groups)
    if not _kernel.sum_groups(_describe(values), _describe(numbers), sums):
        return None
    return _array(pa.decimal128(38, kind.scale) if is_decimal else pa.int64(), groups, sums)


def mark_repeated(values: pa.UInt64Array) -> tuple[pa.BooleanArray, int]:
    if not hasattr(_kernel, "mark_repeated"):  # an editable install that was not built again
        from mrflight.compute.kernel import reference

        return reference.mark_repeated(values)
    rows = len(values)
    marks = pa.allocate_buffer(-(-rows // 8))
    count = _kernel.mark_repeated(_describe(values), marks)
    return _array(pa.bool_(), rows, marks), count


def order_runs(
    values: pa.UInt64Array, rows: pa.Int64Array, offsets: pa.Int64Array
) -> pa.Int64Array:
    ordered = pa.allocate_buffer(8 * len(rows))
    _kernel.order_runs(_describe(values), _describe(rows), _describe(offsets), ordered)
    return _array(pa.int64(), len(rows), ordered)


def merge_centroids(
    means: pa.DoubleArray,
    weights: pa.DoubleArray,
    bounds: pa.Int64Array,
    cuts: Sequence[float],
    max_unmerged: int,
) -> tuple[pa.DoubleArray, pa.Int64Array]:
    digests = max(0, len(bounds) - 1)
    merged, counts = pa.allocate_buffer(16 * len(means)), pa.allocate_buffer(8 * digests)
    columns = (_describe(means), _describe(weights), _describe(bounds))
    count = _kernel.merge_centroids(*columns, cuts, max_unmerged, merged, counts)
    return _array(pa.float64(), 2 * count, merged), _array(pa.int64(), digests, counts)


def merge_moments(
    means: pa.DoubleArray,
    counts: pa.DoubleArray | None,
    squares: pa.DoubleArray | None,
    numbers: pa.Int32Array,
    groups: int,
) -> pa.DoubleArray:
    merged = pa.allocate_buffer(24 * groups)
    described = [None if each is None else _describe(each) for each in (counts, squares)]
    _kernel.merge_moments(_describe(means), described[0], described[1], _describe(numbers), merged)
    return _array(pa.float64(), 3 * groups, merged)


def check_ids(ids: pa.Int32Array, partitions: int) -> None:
    _kernel.check_ids(_describe(ids), partitions)


class HashTable:
    """The rows of a table by their buckets, in Rust (``kernel/src/hash_table.rs``)."""

    def __init__(self, hashes: pa.UInt64Array) -> None:
        self._table = _kernel.HashTable(_describe(hashes))

    def pairs(
        self, hashes: pa.UInt64Array, max_pairs: int, *, only_first: bool = False
    ) -> Iterator[tuple[pa.UInt32Array, pa.UInt32Array]]:
        described, position = _describe(hashes), (0, 0)
        while position[0] < len(hashes):
            probes, rows = pa.allocate_buffer(4 * max_pairs), pa.allocate_buffer(4 * max_pairs)
            count, position = self._table.pairs(described, only_first, position, probes, rows)
            if count:
                yield _array(pa.uint32(), count, probes), _array(pa.uint32(), count, rows)


class RunningSums:
    """The sums of each key, in Rust (``kernel/src/running_sums.rs``)."""

    def __init__(self, schema: pa.Schema, key: Layout, sums: Sequence[Layout]) -> None:
        self._schema = schema
        self._widths = [each.width for each in (key, *sums)]
        self._sums = _kernel.RunningSums(key, sums)

    @property
    def groups(self) -> int:
        return self._sums.groups

    @property
    def used_bytes(self) -> int:
        return self._sums.used_bytes

    def add(self, batch: pa.RecordBatch) -> bool:
        if any(column.null_count for column in batch.columns):
            return False
        key, *values = map(_describe, batch.columns)
        self._sums.add(key, values)
        return True

    def take(self) -> pa.RecordBatch:
        groups = self.groups
        buffers = [pa.allocate_buffer(width * groups) for width in self._widths]
        self._sums.take(buffers[0], buffers[1:])
        columns = map(_array, self._schema.types, repeat(groups), buffers)
        return pa.RecordBatch.from_arrays(list(columns), schema=self._schema)


def running_sums(schema: pa.Schema) -> RunningSums | None:
    if not hasattr(_kernel, "RunningSums"):  # an editable install that was not built again
        return None
    found = [layout(kind) for kind in schema.types]
    known = [each for each in found if each is not None]
    if len(known) < len(found) or known[0].name not in _INTEGERS:
        return None
    if not all(map(_is_summed, schema.types[1:])):
        return None
    return RunningSums(schema, known[0], known[1:])


def _is_summed(kind: pa.DataType) -> bool:
    if types.is_decimal128(kind):
        return kind.precision == _MAX_DIGITS
    return types.is_int32(kind) or types.is_int64(kind)


class Scatter:
    """The rows of batches in growing columns, in Rust (``kernel/src/scatter.rs``)."""

    def __init__(self, schema: pa.Schema, scatter: _kernel.Scatter, partitions: int) -> None:
        self._schema = schema
        self._types = schema.types
        self._scatter = scatter
        self._partitions = partitions

    @property
    def used_bytes(self) -> int:
        return self._scatter.used_bytes

    @property
    def free_bytes(self) -> int:
        return self._scatter.free_bytes

    def release(self) -> None:
        self._scatter.release()

    def add(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None:
        self._scatter.add([_describe(column) for column in batch.columns], _describe(ids))

    def measure(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        rows, sizes = np.empty((2, self._partitions), np.int64)
        self._scatter.measure(rows, sizes)
        return rows, sizes

    def take(self, partition: int) -> pa.RecordBatch:
        rows, columns = self._scatter.take(partition)
        if rows == 0:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        arrays = [
            pa.Array.from_buffers(
                type_, rows, [None if part is None else pa.py_buffer(part) for part in parts]
            )
            for type_, parts in zip(self._types, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def scatter(
    schema: pa.Schema, partitions: int, budget_bytes: int, expected_bytes: int
) -> Scatter | None:
    found = [_appended_layout(field.type) for field in schema]
    layouts = [layout for layout in found if layout is not None]
    if not found or len(layouts) < len(found):
        return None
    rows = _kernel.Scatter(layouts, partitions, budget_bytes, expected_bytes)
    return Scatter(schema, rows, partitions)


def _appended_layout(type_: pa.DataType) -> Layout | None:
    """Return the layout of a type that the kernel can append to; None for other types."""
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    found = layout(type_)
    known = found is not None and (found.name in _SCATTERED or found == Layout("binary", 4))
    return found if known else None


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
