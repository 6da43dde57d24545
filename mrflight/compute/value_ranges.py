"""Ranges of values, by which rows are left out that cannot match."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc

Range = tuple[pa.Scalar | None, pa.Scalar | None]
"""The smallest and the largest value of a column; None if there is none."""


class ScanBounds(msgspec.Struct, frozen=True):
    """The smallest and the largest value that are needed of a column of a scan."""

    scan: int
    """The position of the scan among those of its fragment."""
    column: bytes
    """The expression of the column."""
    low: pa.Scalar
    high: pa.Scalar


def has_bounds(kind: pa.DataType) -> bool:
    """Return whether scans are bounded by columns of a type."""
    return bool(types.is_integer(kind) or types.is_date32(kind))


def value_range(columns: Iterable[pa.Array]) -> Range:
    """Return the smallest and the largest value of some columns; None if there is none."""
    ranges = [pc.min_max(column) for column in columns if len(column) > column.null_count]
    if not ranges:
        return None, None
    low, high = (pa.array([each[end] for each in ranges]) for end in ("min", "max"))
    return pc.min(low), pc.max(high)


def united(ranges: Iterable[Range]) -> Range:
    """Return the range of several ones."""
    return value_range(
        pa.array([low, high]) for low, high in ranges if low is not None and high is not None
    )
