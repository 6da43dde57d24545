"""Whole numbers in as few bytes as the largest one takes, and decimals as whole numbers.

NumPy works on Arrow's buffers here, which takes 1 ns a value in each direction. Arrow's own casts
check each decimal and take 7 and 16 ns.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import values_in

_MAX_DIGITS = 18
"""Decimals of up to so many digits always fit into 64 bits."""

_NUMPY_TYPES = {
    pa.int16(): "<i2",
    pa.int32(): "<i4",
    pa.int64(): "<i8",
    pa.uint16(): "<u2",
    pa.uint32(): "<u4",
    pa.uint64(): "<u8",
    pa.date32(): "<i4",
}
"""The NumPy type of each Arrow type whose values may take fewer bytes."""


class _Narrower(NamedTuple):
    """A type of fewer bytes, in Arrow and in NumPy, and the numbers that it holds."""

    arrow: pa.DataType
    numpy: np.dtype[Any]
    minimum: int
    maximum: int


def _narrower_than(numpy_type: str) -> list[_Narrower]:
    found = [np.dtype(f"<{numpy_type[1]}{2**power}") for power in range(3)]
    return [
        _Narrower(pa.from_numpy_dtype(each), each, int(np.iinfo(each).min), int(np.iinfo(each).max))
        for each in found
        if each.itemsize < np.dtype(numpy_type).itemsize
    ]


_NARROWER = {each: _narrower_than(each) for each in _NUMPY_TYPES.values()}
"""The narrower types of each NumPy type, the narrowest first."""

_BY_NAME = {str(type_): type_ for type_ in _NUMPY_TYPES}
_DECIMAL = re.compile(r"decimal128\((\d{1,2}), (-?\d{1,3})\)")


def is_short_decimal(type_: pa.DataType) -> bool:
    """Return whether the type's values are 64-bit whole numbers, apart from the decimal point."""
    return bool(types.is_decimal128(type_)) and type_.precision <= _MAX_DIGITS


def is_encodable(type_: pa.DataType) -> bool:
    """Return whether `narrowest_type` takes values of this type (decimals after `to_int64`).

    A reader must be able to find the type by its name. So decimals with a scale of thousands are
    left out, and so are extension types, which need not even have a hash.
    """
    return bool(type_named(str(type_)) == type_)


@lru_cache(maxsize=1024)
def type_named(name: str) -> pa.DataType | None:
    """Return the encodable type whose ``str`` is ``name``; None if there is none."""
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        return pa.decimal128(precision, scale) if 1 <= precision <= _MAX_DIGITS else None
    return _BY_NAME.get(name)


def to_int64(decimals: pa.Array) -> pa.Array | None:
    """Return 128-bit decimals as int64; None if one has more digits than its type says.

    Values behind nulls are checked as well, because `decode_integers` looks at all values.
    """
    halves = _values(decimals, "<i8,<i8")
    lower = np.ascontiguousarray(halves["f0"])
    if not np.array_equal(halves["f1"], lower >> 63) or not _fits(lower, decimals.type):
        return None
    return _array(pa.int64(), decimals, lower)


def narrowest_type(numbers: pa.Array) -> pa.DataType:
    """Return the type of the fewest bytes that holds all of these numbers, at least one."""
    numpy_type = _NUMPY_TYPES[numbers.type]
    values = _values(numbers, numpy_type)
    least, most = values.min(), values.max()
    fitting = (
        each.arrow
        for each in _NARROWER[numpy_type]
        if each.minimum <= least and most <= each.maximum
    )
    return next(fitting, numbers.type)


def encode_integers(numbers: pa.Array, narrow: pa.DataType) -> pa.Array | None:
    """Return the numbers in a type from `narrowest_type`; None if it does not hold them all."""
    if numbers.type == narrow:
        return numbers
    numpy_type = _NUMPY_TYPES[numbers.type]
    values = _values(numbers, numpy_type)
    (target,) = (each for each in _NARROWER[numpy_type] if each.arrow == narrow)
    if len(values) and not target.minimum <= values.min() <= values.max() <= target.maximum:
        return None
    return _array(narrow, numbers, values.astype(target.numpy))


def decode_integers(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values of ``type_`` that `encode_integers` encoded.

    Raises ArrowInvalid if it cannot have encoded them.
    """
    if not types.is_integer(numbers.type):
        raise pa.ArrowInvalid(f"{numbers.type} is not an encoding of {type_}")
    narrow, wide = _numpy_types(numbers.type, type_)
    values = _values(numbers, narrow)
    if not is_short_decimal(type_):
        return _array(type_, numbers, values.astype(wide))
    if not _fits(values, type_):
        raise pa.ArrowInvalid(f"an encoded {type_} has more digits than its type")
    halves = np.empty((len(values), 2), "<i8")
    halves[:, 0] = values
    np.right_shift(halves[:, 0], 63, out=halves[:, 1])
    return _array(type_, numbers, halves)


@lru_cache(maxsize=1024)
def _numpy_types(narrow: pa.DataType, type_: pa.DataType) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the NumPy types of an integer type, and of the wider type that it encodes."""
    wide = np.dtype(_NUMPY_TYPES.get(type_, "<i8"))
    found = np.dtype(narrow.to_pandas_dtype())
    if found.kind != wide.kind or found.itemsize > wide.itemsize:
        raise pa.ArrowInvalid(f"{narrow} is not an encoding of {type_}")
    return found, wide


def _fits(values: npt.NDArray[Any], decimal: pa.DataType) -> bool:
    """Return whether no number has more digits than decimals of this type have."""
    bound = 10**decimal.precision
    return not len(values) or bool(-bound < values.min() and values.max() < bound)


def _values(numbers: pa.Array, numpy_type: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values of all rows, including whatever is behind nulls."""
    if not len(numbers):
        return np.empty(0, numpy_type)
    return values_in(numbers.buffers()[1], numpy_type, len(numbers), numbers.offset)


def _array(
    type_: pa.DataType, nulls_of: pa.Array, values: npt.NDArray[np.integer[Any]]
) -> pa.Array:
    """Return an array of these values that is null where ``nulls_of`` is."""
    nulls = nulls_of.is_valid().buffers()[1] if nulls_of.null_count else None
    return pa.Array.from_buffers(type_, len(nulls_of), [nulls, pa.py_buffer(values)])
