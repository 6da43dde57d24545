"""Integers between NumPy and Arrow, without a copy.

`pa.array` and `Array.to_numpy` would do, and import pandas where it is
installed: 0.2 s, once in every worker process.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_arrow(numbers: npt.NDArray[np.int64]) -> pa.Int64Array:
    """``numbers``, which must not change any more."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def to_numpy(numbers: pa.Int32Array) -> npt.NDArray[np.int32]:
    """Of numbers without nulls."""
    return np.frombuffer(numbers.buffers()[1], np.int32, len(numbers), numbers.offset * 4)
