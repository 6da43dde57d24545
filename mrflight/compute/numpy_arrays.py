"""Plain values between NumPy and Arrow, without a copy where they are integers.

`pa.array` and `Array.to_numpy` would do. Both may import pandas where it is installed, 0.2 s, and
`pa.array` imports NumPy's masked arrays, 9 ms, once in every worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_arrow(values: npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]) -> pa.Array:
    """``values``, one after the other in memory, which must not change any more."""
    kind = pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])


def to_numpy(numbers: pa.Int32Array) -> npt.NDArray[np.int32]:
    """Of numbers without nulls."""
    return values_in(numbers.buffers()[1], np.int32, len(numbers), numbers.offset)


def values_in(data: pa.Buffer, kind: npt.DTypeLike, count: int, first: int) -> npt.NDArray[Any]:
    """So many values of a buffer, not to be written to; it may end within one more."""
    width = np.dtype(kind)
    return np.frombuffer(data, width, count, first * width.itemsize)
