"""How large values will be once they are decoded, computed without decoding them.

A dictionary's value, a run's, or the bytes that views share, are on the wire once and in the
plain layout (`mrflight.compute.layout`) as often as rows refer to them: a message of 1 KB may
stand for 8 GB. Sizes are floats, as what a hostile message claims does not fit into integers.
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
Places = npt.NDArray[np.int64]

_VALIDITY_BYTES = 1 / 8
_OFFSET_BYTES = 4
_AT_ONCE = 2**18
"""Elements that are looked at together, which takes some MiB."""


def row_bytes(column: pa.Array) -> Sizes:
    """By row, the bytes of its value in the plain layout. Takes memory for each row."""
    rows = np.arange(len(column), dtype=np.int64)
    if fixed_bytes(column.type) is None and types.is_run_end_encoded(column.type):
        ends = numbers_of(column.run_ends)
        return _of_each(column.values, np.searchsorted(ends, rows + column.offset, side="right"))
    return _decoded_bytes(column, rows, rows + 1)


def fixed_bytes(kind: pa.DataType) -> float | None:
    """The bytes of a value of this type in the plain layout; None where values differ in it.

    What is never decoded, a union or a list view, counts for nothing.
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
    """The numbers of an array of integers, whatever those are that are null; not to be written to.

    Arrow's own ``to_numpy`` imports pandas, 36 MB of a server's memory.
    """
    return values_in(integers.buffers()[1], str(integers.type), len(integers), integers.offset)


def is_list(kind: pa.DataType) -> bool:
    """Whether its values are lists of as many elements as each has."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _decoded_bytes(array: pa.Array, starts: Places, ends: Places) -> Sizes:
    """Of each run of elements, those from ``starts`` to before ``ends``, the bytes together."""
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
        return _added_up(starts, ends, lambda at: _of_indices(array, at))
    if types.is_struct(kind):
        fields = [array.field(i) for i in range(kind.num_fields)]
        return own + sum(_decoded_bytes(field, starts, ends) for field in fields)
    if types.is_fixed_size_list(kind):
        first, last = starts + array.offset, ends + array.offset
        return own + _decoded_bytes(array.values, first * kind.list_size, last * kind.list_size)
    if _is_view(kind):
        views = values_in(array.buffers()[1], np.int32, len(array) * 4, array.offset * 4)
        sizes = views[::4]  # of the four words of a view the first
        return own + _added_up(starts, ends, lambda at: np.maximum(sizes[at], 0).astype(float))
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


def _of_indices(array: pa.DictionaryArray, at: Places) -> Sizes:
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


def _of_each(array: pa.Array, at: Places) -> Sizes:
    """Of the elements at these places, each computed once however often it is there."""
    places, inverse = np.unique(at, return_inverse=True)
    return _decoded_bytes(array, places, places + 1)[inverse]


def _added_up(starts: Places, ends: Places, bytes_at: Callable[[Places], Sizes]) -> Sizes:
    """Of each run the sum over its elements, of which not all are looked at together."""
    counts = ends - starts
    until = np.cumsum(counts)
    found = np.zeros(len(starts))
    total = int(until[-1]) if len(until) else 0
    for first in range(0, total, _AT_ONCE):
        elements = np.arange(first, min(first + _AT_ONCE, total))
        runs = np.searchsorted(until, elements, side="right")
        places = starts[runs] + elements - (until[runs] - counts[runs])
        found += np.bincount(runs, bytes_at(places), len(starts))
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
