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

from mrflight.compute.types import comparable

MAX_LOW_CARDINALITY = 256
"""The number of values that codes of one byte can have."""

MAX_SHORT_BYTES = 32
"""The longest string of a low-cardinality dictionary, in bytes. Decoding then adds at most 31 bytes
a row."""


def to_arrow(values: npt.NDArray[np.number[Any]] | npt.NDArray[np.bool_]) -> pa.Array:
    """Return contiguous values as an Arrow array; they must not change any more."""
    kind, count = pa.from_numpy_dtype(values.dtype), len(values)
    if values.dtype == np.bool_:
        values = np.packbits(values.astype(np.bool_, copy=False), bitorder="little")
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])


def to_numpy(numbers: pa.Int32Array) -> npt.NDArray[np.int32]:
    """Return numbers without nulls as a read-only NumPy array."""
    return values_in(numbers.buffers()[1], np.int32, len(numbers), numbers.offset)


def to_floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return numbers or times without nulls as doubles, which round those of more than 53 bits."""
    numbers = comparable(column)
    if pa.types.is_temporal(numbers.type):
        numbers = numbers.cast(pa.int32() if numbers.type.bit_width == 32 else pa.int64())
    floats = numbers.cast(pa.float64(), safe=False).combine_chunks()
    return values_in(floats.buffers()[1], np.float64, len(floats), floats.offset)


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
    return longest_string(dictionary) <= MAX_SHORT_BYTES


def longest_string(strings: pa.StringArray) -> int:
    """Return the bytes of the longest string; 0 if there is none.

    What is behind nulls counts as well. Arrow's `binary_length` takes 16 ns a string, this 1 ns.
    """
    if not len(strings):
        return 0
    ends = values_in(strings.buffers()[1], "<i4", len(strings) + 1, strings.offset)
    return int(np.diff(ends).max())
