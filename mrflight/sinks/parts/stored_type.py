"""The type that a column is stored as, for each output format.

Delta has fewer types than Arrow (section "Primitive Types" of its protocol). Some types are widened
without losing values, and the others are refused with advice. Dictionaries, views and 64-bit
offsets are layouts and not types. They are stored as the canonical type in every format, so that
appends agree whatever layout a job's rows have.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from mrflight.compute.types import canonical_type

MAX_DECIMAL_DIGITS = 38
"""The most digits of a Delta decimal."""

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_KEPT = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
}


class UnstorableTypeError(Exception):
    """A type that the format cannot hold. The message says what to do instead."""


def file_type(kind: pa.DataType) -> pa.DataType:
    """Return how parquet, csv and arrow files store a type: the same values in canonical layout.

    Raises UnstorableTypeError.
    """
    return canonical_type(kind, _file_leaf)


def delta_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the Delta type that holds every value of ``kind``.

    Nanoseconds become microseconds, and only the rows show whether that loses anything. Raises
    UnstorableTypeError.
    """
    stored = canonical_type(kind, _delta_leaf, keep_fixed_size=False)
    if _has_map_of_ntz(stored):
        # deltalake 1.6.6 creates the table without the needed feature, and it cannot be read.
        raise UnstorableTypeError(
            "deltalake cannot make a table with a timestamp without zone inside of a map; cast it "
            "to one with a zone in the map"
        )
    return stored


def is_unusual(kind: pa.DataType) -> bool:
    """Return whether some format may not hold a type that `file_type` or `delta_type` returned."""
    return not (kind in _KEPT or types.is_timestamp(kind) or types.is_decimal128(kind))


def has_ntz(kind: pa.DataType) -> bool:
    """Return whether a timestamp without zone (Delta's timestamp_ntz) is in it, at any depth."""
    if types.is_timestamp(kind):
        return kind.tz is None
    return any(has_ntz(kind.field(i).type) for i in range(kind.num_fields))


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types differ at most in the names of list items and in nullability."""
    if types.is_list(one) and types.is_list(other):
        return same_type(one.value_type, other.value_type)
    if types.is_map(one) and types.is_map(other):
        return same_type(one.key_type, other.key_type) and same_type(one.item_type, other.item_type)
    if types.is_struct(one) and types.is_struct(other):
        ours, theirs = list(one), list(other)
        return [field.name for field in ours] == [field.name for field in theirs] and all(
            same_type(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
        )
    return bool(one == other)


def _has_map_of_ntz(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return has_ntz(kind)
    return any(_has_map_of_ntz(kind.field(i).type) for i in range(kind.num_fields))


def _file_leaf(kind: pa.DataType) -> pa.DataType:
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        raise UnstorableTypeError("list views are not written; make it a list in the map")
    return kind


def _delta_leaf(kind: pa.DataType) -> pa.DataType:
    kind = _file_leaf(kind)
    if kind in _KEPT:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    raise UnstorableTypeError(f"Delta has no such type; {_delta_advice(kind)} in the map")


def _delta_advice(kind: pa.DataType) -> str:
    if types.is_null(kind):
        return "give it a type, cast(NULL as string) in sql"
    if types.is_decimal(kind):
        return f"cast it to a decimal of at most {MAX_DECIMAL_DIGITS} digits, or to string"
    if types.is_time(kind) or types.is_duration(kind):
        return "cast it to int64 or string"
    return "cast it to another type, such as string"
