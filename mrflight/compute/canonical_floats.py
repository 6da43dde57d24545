"""Floats that are equal as keys, as one value: a zero has no sign, and all NaNs are one."""

from __future__ import annotations

import pyarrow as pa


def canonical_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with one zero and one NaN; other types as they are."""
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    wide = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
    nan = pa.scalar(float("nan"), wide.type)
    zeroed = pc.add(wide, pa.scalar(0.0, wide.type))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(zeroed), nan, zeroed).cast(column.type)
