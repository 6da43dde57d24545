"""The size of values once they are decoded, computed without decoding them.

The value of a dictionary or a run, or bytes that views share, are on the wire once, and in the
canonical layout (`mrflight.compute.layout`) as often as rows refer to them: a message of 1 KB may
stand for 8 GB. Sizes are floats, because what a hostile message claims does not fit into integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import values_in
from mrflight.errors import ProtocolError

Sizes = npt.NDArray[np.floating[Any]]
Positions = npt.NDArray[np.int64]

_VALIDITY_BYTES = 1 / 8
_OFFSET_BYTES = 4
_AT_ONCE = 2**18
"""Elements that are processed at a time, which takes some MiB."""


def row_bytes(column: pa.Array) -> Sizes:
    """Return the bytes of each row's value in the canonical layout. Takes memory for each row."""
    rows = np.arange(len(column), dtype=np.int64)
    if fixed_bytes(column.type) is None and types.is_run_end_encoded(column.type):
        ends = numbers_of(column.run_ends)
        return _of_each(column.values, np.searchsorted(ends, rows + column.offset, side="right"))
    return _decoded_bytes(column, rows, rows + 1)


def fixed_bytes(kind: pa.DataType) -> float | None:
    """Return the bytes of a value of this type in the canonical layout; None if values differ.

    Types that are never decoded, unions and list views, count as 0.
    """
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return fixed_bytes(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return fixed_bytes(kind.storage_type)
    if types.is_null(kind) or types.is_union(kind) or _is_list_view(kind):
        return 0.0
    if types.is_fixed_size_list(kind):
        value = fixed_bytes(kind.value_type) if kind.list_size else 0.0
        return None if value is None else _VALIDITY_BYTES + kind.list_size * value
    if types.is_struct(kind):
        values = [fixed_bytes(field.type) for field in kind]
        known = [value for value in values if value is not None]
        return _VALIDITY_BYTES + sum(known) if len(known) == len(values) else None
    if _is_text(kind) or _is_view(kind) or is_list(kind):
        return None
    return float(_VALIDITY_BYTES + kind.bit_width / 8)


def numbers_of(integers: pa.Array) -> npt.NDArray[np.integer[Any]]:
    """Return a read-only view of an array's integers, with arbitrary values where it is null.

    Arrow's own ``to_numpy`` imports pandas, which takes 36 MB of a server's memory.
    """
    return values_in(integers.buffers()[1], str(integers.type), len(integers), integers.offset)


def is_list(kind: pa.DataType) -> bool:
    """Return whether the type is a list whose values have different lengths."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _decoded_bytes(array: pa.Array, starts: Positions, ends: Positions) -> Sizes:
    """Return the bytes of each run of elements, from ``starts`` to before ``ends``."""
    kind = array.type
    counts = ends - starts
    if (fixed := fixed_bytes(kind)) is not None:
        return counts * fixed
    own = counts * (_OFFSET_BYTES + _VALIDITY_BYTES)
    if len(array) == 0:
        return own
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded_bytes(array.storage, starts, ends)
    if types.is_dictionary(kind):
        return _sum_by_run(starts, ends, lambda at: _of_indices(array, at))
    if types.is_struct(kind):
        fields = [array.field(i) for i in range(kind.num_fields)]
        return own + sum(_decoded_bytes(field, starts, ends) for field in fields)
    if types.is_fixed_size_list(kind):
        first, last = starts + array.offset, ends + array.offset
        return own + _decoded_bytes(array.values, first * kind.list_size, last * kind.list_size)
    if _is_view(kind):
        views = values_in(array.buffers()[1], np.int32, len(array) * 4, array.offset * 4)
        sizes = views[::4]  # the first of the four words of each view
        return own + _sum_by_run(starts, ends, lambda at: np.maximum(sizes[at], 0).astype(float))
    if _is_text(kind):
        width = np.int64 if kind in (pa.large_string(), pa.large_binary()) else np.int32
        offsets = values_in(array.buffers()[1], width, len(array) + 1, array.offset).astype(
            np.int64
        )
        return own + (offsets[ends] - offsets[starts])
    if types.is_run_end_encoded(kind):
        raise ProtocolError(f"run-end encoded values within other values, {kind}, are not decoded")
    offsets = numbers_of(array.offsets).astype(np.int64)
    return own + _decoded_bytes(array.values, offsets[starts], offsets[ends])


def _of_indices(array: pa.DictionaryArray, at: Positions) -> Sizes:
    """Return the bytes of a dictionary array's elements at these positions."""
    first = int(at.min())
    indices = array.indices.slice(first, int(at.max()) - first + 1)
    found = np.zeros(len(at))
    is_valid = np.ones(len(at), bool)
    if indices.null_count:
        bits = np.frombuffer(indices.is_valid().buffers()[1], np.uint8)
        is_valid = np.unpackbits(bits, bitorder="little")[at - first].astype(bool)
    valid = numbers_of(indices)[at - first][is_valid].astype(np.int64)
    found[is_valid] = _of_each(array.dictionary, valid)
    return found


def _of_each(array: pa.Array, at: Positions) -> Sizes:
    """Return the bytes of the elements at these positions; repeated ones are computed once."""
    positions, inverse = np.unique(at, return_inverse=True)
    return _decoded_bytes(array, positions, positions + 1)[inverse]


def _sum_by_run(
    starts: Positions, ends: Positions, bytes_at: Callable[[Positions], Sizes]
) -> Sizes:
    """Return the sum of the bytes of each run's elements, computed `_AT_ONCE` at a time."""
    counts = ends - starts
    until = np.cumsum(counts)
    found = np.zeros(len(starts))
    total = int(until[-1]) if len(until) else 0
    for first in range(0, total, _AT_ONCE):
        elements = np.arange(first, min(first + _AT_ONCE, total))
        runs = np.searchsorted(until, elements, side="right")
        positions = starts[runs] + elements - (until[runs] - counts[runs])
        found += np.bincount(runs, bytes_at(positions), len(starts))
    return found


def _is_text(kind: pa.DataType) -> bool:
    return (
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    )


def _is_view(kind: pa.DataType) -> bool:
    return types.is_string_view(kind) or types.is_binary_view(kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return types.is_list_view(kind) or types.is_large_list_view(kind)
