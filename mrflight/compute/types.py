"""Removes the differences between equal values: their layout, the sign of zero, and kinds of NaN.

The same strings may be large strings, views, a dictionary or runs, and a list or struct may declare
that it has no nulls inside. Columns that differ only in this have the same values, so they can be
combined: as files of one input, as blocks of one partition, and as parts of one table.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc


def canonical_type(
    kind: pa.DataType,
    leaf: Callable[[pa.DataType], pa.DataType] = lambda leaf: leaf,
    *,
    keep_fixed_size: bool = True,
) -> pa.DataType:
    """Return the type with 32-bit offsets, without encodings, and with nullable nested fields.

    ``leaf`` is applied to types that are not nested, and to list views. These have no other layout
    to cast to: the cast drops values in pyarrow 26. Without ``keep_fixed_size``, lists of a fixed
    size become lists.
    """

    def inner(kind: pa.DataType) -> pa.DataType:
        if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
            return inner(kind.value_type)
        if types.is_large_string(kind) or types.is_string_view(kind):
            return leaf(pa.string())
        if types.is_large_binary(kind) or types.is_binary_view(kind):
            return leaf(pa.binary())
        if types.is_fixed_size_list(kind) and keep_fixed_size:
            return pa.list_(inner(kind.value_type), kind.list_size)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return pa.list_(inner(kind.value_type))
        if types.is_map(kind):
            return pa.map_(inner(kind.key_type), inner(kind.item_type))
        if types.is_struct(kind):
            return pa.struct([(field.name, inner(field.type)) for field in kind])
        return leaf(kind)

    return inner(kind)


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column as a type that Arrow can sort and find the minimum and maximum of.

    Arrow stores durations, float16 and narrow decimals, but does not compare them.
    """
    kind = column.type
    if types.is_duration(kind):
        return column.cast(pa.int64())
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def canonical_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a float column with one zero and one NaN; other columns are returned unchanged."""
    if not types.is_floating(column.type):
        return column
    wide = column.cast(pa.float32()) if types.is_float16(column.type) else column
    nan = pa.scalar(float("nan"), wide.type)
    zeroed = pc.add(wide, pa.scalar(0.0, wide.type))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(zeroed), nan, zeroed).cast(column.type)
