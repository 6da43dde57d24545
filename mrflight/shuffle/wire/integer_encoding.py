"""Whole numbers in as few bytes as the largest takes, and decimals as whole numbers.

Of Arrow's buffers by NumPy, which takes 1 ns a value for each way: casts of Arrow's check each
decimal, at 7 and 16 ns.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from mrflight.compute.numpy_arrays import values_in

_DIGITS = 18
"""Of decimals that fit into 64 bits whatever they are."""

_STORED = {
    pa.int16(): "<i2",
    pa.int32(): "<i4",
    pa.int64(): "<i8",
    pa.uint16(): "<u2",
    pa.uint32(): "<u4",
    pa.uint64(): "<u8",
    pa.date32(): "<i4",
}
"""What NumPy calls the values of types that may take fewer bytes."""


class _Smaller(NamedTuple):
    """A type of fewer bytes."""

    kind: pa.DataType
    stored: np.dtype[Any]
    least: int
    most: int


def _smaller(stored: str) -> list[_Smaller]:
    found = [np.dtype(f"<{stored[1]}{2**power}") for power in range(3)]
    return [
        _Smaller(pa.from_numpy_dtype(each), each, int(np.iinfo(each).min), int(np.iinfo(each).max))
        for each in found
        if each.itemsize < np.dtype(stored).itemsize
    ]


_SMALLER = {stored: _smaller(stored) for stored in _STORED.values()}
"""From the smallest."""

_NAMED = {str(kind): kind for kind in _STORED}
_DECIMAL = re.compile(r"decimal128\((\d{1,2}), (-?\d{1,3})\)")


def is_short_decimal(kind: pa.DataType) -> bool:
    """Whether its values are whole numbers of 64 bits, but for the point."""
    return bool(types.is_decimal128(kind)) and kind.precision <= _DIGITS


def is_shrinkable(kind: pa.DataType) -> bool:
    """Whether `smallest` takes such values, decimals as `whole_numbers`.

    Those that a reader knows by their names: no decimals with a scale of thousands, and no
    extension types, which need not even have a hash.
    """
    return bool(kind_named(str(kind)) == kind)


@lru_cache(maxsize=1024)
def kind_named(name: str) -> pa.DataType | None:
    """The type whose ``str`` this is; None where its values are not to be shrunk."""
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        return pa.decimal128(precision, scale) if 1 <= precision <= _DIGITS else None
    return _NAMED.get(name)


def whole_numbers(decimals: pa.Array) -> pa.Array | None:
    """Decimals of 128 bits as int64; None where one has more digits than its type says.

    Or where that is behind a null, as `grown` looks at all.
    """
    halves = _values(decimals, "<i8,<i8")
    lower = np.ascontiguousarray(halves["f0"])
    if not np.array_equal(halves["f1"], lower >> 63) or not _has_digits(lower, decimals.type):
        return None
    return _array(pa.int64(), decimals, lower)


def smallest(numbers: pa.Array) -> pa.DataType:
    """The type of the fewest bytes that holds all of these, of which there are some."""
    stored = _STORED[numbers.type]
    values = _values(numbers, stored)
    least, most = values.min(), values.max()
    fits = (each.kind for each in _SMALLER[stored] if each.least <= least and most <= each.most)
    return next(fits, numbers.type)


def shrunk(numbers: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The numbers in a type that `smallest` has named; None where it does not hold all of these."""
    if numbers.type == kind:
        return numbers
    stored = _STORED[numbers.type]
    values = _values(numbers, stored)
    (smaller,) = (each for each in _SMALLER[stored] if each.kind == kind)
    if len(values) and not smaller.least <= values.min() <= values.max() <= smaller.most:
        return None
    return _array(kind, numbers, values.astype(smaller.stored))


def grown(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """What `shrunk` made of values of ``kind``; ArrowInvalid for what it made of none."""
    if not types.is_integer(numbers.type):
        raise pa.ArrowInvalid(f"{numbers.type} is no narrow {kind}")
    own, stored = _growth(numbers.type, kind)
    values = _values(numbers, own)
    if not is_short_decimal(kind):
        return _array(kind, numbers, values.astype(stored))
    if not _has_digits(values, kind):
        raise pa.ArrowInvalid(f"a narrow {kind} has more digits")
    halves = np.empty((len(values), 2), "<i8")
    halves[:, 0] = values
    np.right_shift(halves[:, 0], 63, out=halves[:, 1])
    return _array(kind, numbers, halves)


@lru_cache(maxsize=1024)
def _growth(narrow: pa.DataType, kind: pa.DataType) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """What NumPy calls values of a narrow type of integers, and of a wider one."""
    stored = np.dtype(_STORED.get(kind, "<i8"))
    own = np.dtype(narrow.to_pandas_dtype())
    if own.kind != stored.kind or own.itemsize > stored.itemsize:
        raise pa.ArrowInvalid(f"{narrow} is no narrow {kind}")
    return own, stored


def _has_digits(values: npt.NDArray[Any], decimal: pa.DataType) -> bool:
    """Whether no whole number has more digits than decimals of a type have."""
    most = 10**decimal.precision
    return not len(values) or bool(-most < values.min() and values.max() < most)


def _values(numbers: pa.Array, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Of all rows, whatever those have that are null."""
    if not len(numbers):
        return np.empty(0, kind)
    return values_in(numbers.buffers()[1], kind, len(numbers), numbers.offset)


def _array(kind: pa.DataType, nulls_of: pa.Array, values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """An array of these values, null where the other is."""
    nulls = nulls_of.is_valid().buffers()[1] if nulls_of.null_count else None
    return pa.Array.from_buffers(kind, len(nulls_of), [nulls, pa.py_buffer(values)])
