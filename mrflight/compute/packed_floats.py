"""Packs lists of doubles into binary values: the states of aggregates, which maps send.

A list of one double is a single value of a column, whatever the state is. So rows become states
without a copy of their values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.arrays import to_arrow, to_floats, values_in
from mrflight.compute.row_groups import nullable
from mrflight.compute.sort_codes import Rows

PACKED = pa.binary()
"""The type of packed lists. Null is the state of no values."""

Floats = npt.NDArray[np.float64]

_MAX_FLOATS = 2**27
"""The doubles in an array of `PACKED`, whose bytes are below 2 GiB."""


class PackedFloats(NamedTuple):
    """Lists of doubles: some of ``values``, from ``starts`` on."""

    values: Floats
    starts: Rows
    lengths: Rows
    """The lengths; 0 for null."""

    @property
    def are_single_values(self) -> bool:
        """True if each list is one double, so that the lists are ``values``."""
        return len(self.values) == len(self.lengths) and bool(self.lengths.all())


def pack_rows(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each number or time as a list of one double; null for null."""
    starts = range(0, max(1, len(column)), _MAX_FLOATS)
    return pa.chunked_array(
        [_pack_rows(column.slice(start, _MAX_FLOATS)) for start in starts], PACKED
    )


def _pack_rows(column: pa.ChunkedArray) -> pa.Array:
    floats = to_floats(column.drop_null())
    if not column.null_count:
        return _array(floats, np.arange(len(floats) + 1, dtype=np.int32))
    valid = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    return nullable(_array(floats, _bounds(valid)), valid)


def pack(values: Floats, lengths: Rows, valid: npt.NDArray[np.bool_]) -> pa.ChunkedArray:
    """Return lists of so many doubles each, in arrays that are not larger than they may be.

    It is null where ``valid`` is false.
    """
    bounds = _bounds(lengths)
    cuts = np.searchsorted(bounds, np.arange(_MAX_FLOATS, bounds[-1], _MAX_FLOATS))
    chunks = []
    for start, stop in pairwise([0, *cuts.tolist(), len(lengths)]):
        lists = bounds[start : stop + 1]
        part = _array(values[lists[0] : lists[-1]], lists - lists[0])
        chunks.append(nullable(part, valid[start:stop]))
    return pa.chunked_array(chunks, PACKED)


def unpack(column: pa.ChunkedArray) -> PackedFloats:
    """Return the lists in a column."""
    offsets = [_offsets(chunk) for chunk in column.chunks]
    nothing = np.empty(0, np.int64)
    parts = [_values(*each) for each in zip(column.chunks, offsets, strict=True)]
    values = np.concatenate([nothing.astype(np.float64), *parts])
    lengths = np.concatenate([nothing, *(np.diff(each) >> 3 for each in offsets)])
    return PackedFloats(values, np.cumsum(lengths) - lengths, lengths)


def _offsets(lists: pa.Array) -> npt.NDArray[np.int32]:
    return values_in(lists.buffers()[1], np.int32, len(lists) + 1, lists.offset)


def _values(lists: pa.Array, offsets: npt.NDArray[np.int32]) -> Floats:
    first, last = int(offsets[0]) >> 3, int(offsets[-1]) >> 3
    return values_in(lists.buffers()[2] or b"", np.float64, last - first, first)


def _bounds(lengths: Rows | npt.NDArray[np.bool_]) -> Rows:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _array(values: Floats, bounds: npt.NDArray[np.integer]) -> pa.Array:
    buffers = [
        None,
        pa.py_buffer(8 * bounds.astype(np.int32)),
        to_arrow(np.ascontiguousarray(values)).buffers()[1],
    ]
    return pa.Array.from_buffers(PACKED, len(bounds) - 1, buffers)
