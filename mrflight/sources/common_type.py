"""The narrowest type that holds the values of two types."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The decimal digits of integers, by their bits; unsigned ones of 64 bits have one more."""

_MAX_DIGITS = 38
_UNITS = ("s", "ms", "us", "ns")


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type for the values of both types, which are canonical; None if none.

    A cast to it loses no value, or fails: int64 and double give double, and that has the integers
    up to 2**53. Fields that only one of two structs has are null in the other.
    """
    if a == b or types.is_null(b):
        return a
    if types.is_null(a):
        return b
    if _is_number(a) and _is_number(b):
        return _common_number(a, b)
    if _is_list(a) and _is_list(b):
        inner = common_type(a.value_type, b.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_struct(a) and types.is_struct(b):
        return _common_struct(a, b)
    return _common_time(a, b)


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_fixed_size_list(kind))


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_integer(a) and types.is_integer(b):
        return _common_integer(a, b)
    if types.is_decimal(a) or types.is_decimal(b):
        return _common_decimal(a, b)
    # A float of 32 bits has the integers of 16 bits, and one of 64 bits those of 32.
    widths = [kind.bit_width * (2 if types.is_integer(kind) else 1) for kind in (a, b)]
    return pa.float32() if max(widths) <= 32 else pa.float64()


def _common_integer(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    is_signed = types.is_signed_integer(a) or types.is_signed_integer(b)
    widths = [
        kind.bit_width * (2 if is_signed and types.is_unsigned_integer(kind) else 1)
        for kind in (a, b)
    ]
    if max(widths) > 64:
        return None
    return getattr(pa, f"{'' if is_signed else 'u'}int{max(widths)}")()


def _common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_floating(a) or types.is_floating(b):
        return None
    digits = [_digits(kind) for kind in (a, b)]
    scale = max(fraction for _, fraction in digits)
    precision = max(whole for whole, _ in digits) + scale
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return the number of digits before and after the point."""
    if types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS[kind.bit_width] + types.is_uint64(kind), 0


def _common_struct(a: pa.StructType, b: pa.StructType) -> pa.StructType | None:
    fields = {field.name: field.type for field in a}
    for field in b:
        common = common_type(fields.get(field.name, pa.null()), field.type)
        if common is None:
            return None
        fields[field.name] = common
    return pa.struct(list(fields.items()))


def _common_time(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_date(a) and types.is_date(b):
        return pa.date64()
    if types.is_date(a) and types.is_timestamp(b) and b.tz is None:
        return b if types.is_date32(a) else _finer(pa.timestamp("ms"), b)
    if types.is_date(b) and types.is_timestamp(a):
        return _common_time(b, a)
    if types.is_time(a) and types.is_time(b):
        return _finer(a, b)
    if types.is_duration(a) and types.is_duration(b):
        return _finer(a, b)
    if types.is_timestamp(a) and types.is_timestamp(b) and a.tz == b.tz:
        return _finer(a, b)
    return None


def _finer(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    return max(a, b, key=lambda kind: _UNITS.index(kind.unit))
