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
from mrflight.compute.row_groups import RowGroups, nullable
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

    @property
    def are_single_values(self) -> bool:
        return bool((self.lengths == 1).all())


def pack_rows(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each number or time as a list of one double; null for null."""
    starts = range(0, max(1, len(column)), _MAX_FLOATS)
    return pa.chunked_array(
        [_pack_rows(column.slice(start, _MAX_FLOATS)) for start in starts], PACKED
    )


def _pack_rows(column: pa.ChunkedArray) -> pa.Array:
    floats = to_floats(column.drop_null())
    if not column.null_count:
        return _array(floats, np.arange(len(floats) + 1))
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


def unpack(column: pa.ChunkedArray, groups: RowGroups) -> PackedFloats:
    """Return the lists in the rows of some groups, none of which is null."""
    lists = column.cast(pa.large_binary()).combine_chunks()  # may have more than 2 GiB
    bounds = values_in(lists.buffers()[1], np.int64, len(lists) + 1, lists.offset) >> 3
    values = values_in(lists.buffers()[2] or b"", "<f8", int(bounds[-1]), 0)
    return PackedFloats(values, bounds[:-1][groups.rows], np.diff(bounds)[groups.rows])


def _bounds(lengths: Rows | npt.NDArray[np.bool_]) -> Rows:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _array(values: Floats, bounds: Rows) -> pa.Array:
    offsets = pa.py_buffer((8 * bounds).astype(np.int32))
    buffers = [None, offsets, to_arrow(np.ascontiguousarray(values)).buffers()[1]]
    return pa.Array.from_buffers(PACKED, len(bounds) - 1, buffers)
