"""Arrow arrays: conversion to and from NumPy without a copy, and the test for low cardinality.

`pa.array` and `Array.to_numpy` would convert as well. Both may import pandas where it is installed,
which takes 0.2 s, and `pa.array` imports NumPy's masked arrays, which takes 9 ms, once in every
worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_LOW_CARDINALITY = 256
"""The number of values that codes of one byte can have."""

MAX_SHORT_BYTES = 32
"""The longest string of a low-cardinality dictionary, in bytes. Decoding then adds at most 31 bytes
a row."""


def to_arrow(values: npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]) -> pa.Array:
    """Return contiguous values as an Arrow array; they must not change any more."""
    kind = pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])


def to_numpy(numbers: pa.Int32Array) -> npt.NDArray[np.int32]:
    """Return numbers without nulls as a read-only NumPy array."""
    return values_in(numbers.buffers()[1], np.int32, len(numbers), numbers.offset)


def values_in(data: pa.Buffer, kind: npt.DTypeLike, count: int, first: int) -> npt.NDArray[Any]:
    """Return ``count`` values of a buffer from number ``first`` on, read-only.

    The buffer may end with a part of a value.
    """
    width = np.dtype(kind)
    return np.frombuffer(data, width, count, first * width.itemsize)


def is_low_cardinality(column: pa.Array) -> bool:
    """Return whether a column is a dictionary of few, short strings.

    Such a dictionary makes the column small, whatever its rows are.
    """
    return isinstance(column, pa.DictionaryArray) and is_short_dictionary(column.dictionary)


def is_short_dictionary(dictionary: pa.Array) -> bool:
    """Return whether a dictionary has few values: short strings, and none of them null."""
    is_short = len(dictionary) <= MAX_LOW_CARDINALITY
    if not is_short or not pa.types.is_string(dictionary.type) or dictionary.null_count:
        return False
    if not len(dictionary):
        return True
    ends = values_in(dictionary.buffers()[1], "<i4", len(dictionary) + 1, dictionary.offset)
    return all(np.diff(ends) <= MAX_SHORT_BYTES)
