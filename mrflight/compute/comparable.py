"""Columns of types that Arrow stores but does not compare, as types that it does."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as a type that Arrow sorts, and finds the least and greatest of, in its order."""
    kind = column.type
    if types.is_duration(kind):
        return column.cast(pa.int64())
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column
