"""The types of key columns that can be joined: those whose equal values have equal hashes.

Equality is that of the hash: numbers are equal by value, all NaNs are equal, and -0.0 equals 0.0.
Null equals nothing.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc
from mrflight.compute.types import canonical_floats

_WIDTHS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def joinable(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether equal values of two plain types have equal hashes.

    Nulls can be joined with any type.
    """
    left, right = storage_type(left), storage_type(right)
    return types.is_null(left) or types.is_null(right) or _family(left) == _family(right)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the plain type that has the values of two joinable types; None if there is none."""
    if left == right or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    left, right = storage_type(left), storage_type(right)
    if types.is_integer(left):
        return _common_integer(left, right)
    if types.is_fixed_size_binary(left) and left != right:
        return pa.binary()
    if types.is_decimal(left):
        return _common_decimal(left, right)
    return left if _width(left) >= _width(right) else right


def has_one_value_per_hash(kind: pa.DataType) -> bool:
    """Return whether different values of a plain type always have different hashes.

    That is so for values that are hashed as 8 bytes: each step of XXH3 for 8 bytes can be undone (a
    rotation, a multiplication by an odd number, a xor with higher bits).
    """
    kind = storage_type(kind)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind))


def unmatched_rows(column: pa.Array, other: pa.DataType) -> pa.BooleanArray | None:
    """Return the rows whose key equals nothing in a column of type ``other``; None without any.

    These are nulls, and unsigned 64-bit integers whose hash is that of a negative number.
    """
    column, other = _storage(column), storage_type(other)
    if types.is_uint64(column.type) and types.is_signed_integer(other):
        column = pc.if_else(pc.less(column, pa.scalar(2**63, pa.uint64())), column, None)
    return column.is_null() if column.null_count else None


def comparable_values(column: pa.Array, other: pa.DataType) -> pa.Array:
    """Return the values in the form in which two joinable columns are compared.

    ``other`` is the type of the other column.
    """
    column, other = _storage(column), storage_type(other)
    kind = column.type
    if types.is_null(kind) or types.is_null(other):
        return pa.nulls(len(column), pa.binary())
    if types.is_floating(kind):
        wide = canonical_floats(pa.chunked_array([column.cast(pa.float64())])).combine_chunks()
        return wide.view(pa.int64())
    if types.is_temporal(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if types.is_integer(kind):
        return column.view(pa.int64()) if types.is_uint64(kind) else column.cast(pa.int64())
    if types.is_decimal(kind):
        wide_type = pa.decimal256 if _is_wide(kind) or _is_wide(other) else pa.decimal128
        return column.cast(wide_type(76 if wide_type is pa.decimal256 else 38, kind.scale))
    return column if types.is_boolean(kind) else column.cast(pa.binary())


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type behind extensions, which is the one that is hashed."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _storage(column: pa.Array) -> pa.Array:
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column


def _family(kind: pa.DataType) -> tuple[object, ...]:
    """Return what joinable types have in common."""
    if types.is_integer(kind):
        return ("integer",)
    if types.is_floating(kind):
        return ("float",)
    if types.is_decimal(kind):
        return ("decimal", kind.scale)
    if types.is_timestamp(kind):
        return ("timestamp", kind.unit, kind.tz is None)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return ("binary",)
    return (kind,)


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if types.is_signed_integer(left) == types.is_signed_integer(right):
        return left if _width(left) >= _width(right) else right
    signed, unsigned = (left, right) if types.is_signed_integer(left) else (right, left)
    return _WIDTHS.get(max(signed.bit_width, 2 * unsigned.bit_width))


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    by_width = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
    widest = by_width[max(left.bit_width, right.bit_width)]
    return widest(max(left.precision, right.precision), left.scale)


def _is_wide(kind: pa.DataType) -> bool:
    return bool(types.is_decimal256(kind))


def _width(kind: pa.DataType) -> int:
    """Return the bits of a number; 0 for types without a width, so that these compare equal."""
    fixed = types.is_integer(kind) or types.is_floating(kind)
    return int(kind.bit_width) if fixed else 0
