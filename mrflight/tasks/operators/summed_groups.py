"""Groups rows by the kernel, if all that is asked for are sums and counts without nulls.

With 30,000 keys of one int64 in 262,144 rows, a sum and a count take 11 ns a row, where Acero takes
21. With ten strings of 18 characters as keys, a sum takes 9 ns, and 17 in Acero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow, to_numpy

_MAX_COLUMN_BYTES = 2**31 - 1
"""What fits into one array of strings."""


def group_sums(
    keys: Sequence[pa.ChunkedArray], calls: Sequence[tuple[pa.ChunkedArray | None, str]]
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]] | None:
    """Return the distinct keys, by their first rows, and the result of each call.

    A call is a function and its column; without a column, rows are counted. Returns None if Acero
    has to group them: for other functions and types, for values with nulls, and for sums that do
    not fit. So nothing has to be known about the values before.
    """
    if not all(_is_known(*call) for call in calls):
        return None
    if any(key.nbytes > _MAX_COLUMN_BYTES for key in keys):
        return None
    key = [_in_one(each) for each in keys]
    numbered = kernel.number_keys(key)
    if numbered is None:
        return None
    numbers, firsts = numbered
    results = []
    for column, function in calls:
        if column is None or function == "count":
            result = to_arrow(np.bincount(to_numpy(numbers), minlength=len(firsts)))
        elif types.is_floating(column.type):
            result = pa.array([], pa.float64())
        else:
            result = kernel.sum_groups(_in_one(column), numbers, len(firsts))
        if result is None:
            return None
        results.append(pa.chunked_array([result]))
    if len(firsts) < len(numbers):
        key = [_take(each, firsts) for each in key]
    return [pa.chunked_array([each]) for each in key], results


def _is_known(column: pa.ChunkedArray | None, function: str) -> bool:
    if column is None or column.null_count:
        return column is None
    if not len(column) and types.is_floating(column.type):
        return function in ("count", "sum")
    kind = column.type
    is_integer = types.is_integer(kind) and not types.is_uint64(kind)
    return function == "count" or (function == "sum" and (is_integer or types.is_decimal128(kind)))


def _take(column: pa.Array, rows: pa.UInt32Array) -> pa.Array:
    """Return the values of these rows; Arrow's `take` first loads `pyarrow.compute`."""
    if not types.is_integer(column.type) or column.null_count:
        return column.take(rows)
    return to_arrow(column.to_numpy()[rows.to_numpy()])


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array; `combine_chunks` copies even a single chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
