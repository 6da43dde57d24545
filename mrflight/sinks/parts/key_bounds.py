"""The bounds of the keys in a file, by which a merge skips files of a table.

A missing bound costs time, but a wrong bound would leave two rows of one key. So there are no
bounds for types whose bounds in a log may be rounded (floats, decimals) or are read in several
ways (binary). Those of timestamps get some tolerance, as other writers cut them to milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute import arrow_compute as pc
from mrflight.sinks.parts.partition_values import PartitionValues

Range = tuple[Any, Any]
"""A minimum and a maximum, as integers or strings."""

_TOLERANCE_US = 1000
"""The distance by which a timestamp may be beyond its bound in a log."""


class KeyBounds(msgspec.Struct, frozen=True):
    """Bounds of the keys in some files."""

    ranges: Mapping[str, Range] = msgspec.field(default_factory=dict)
    """By column. A column that is missing may hold anything."""
    partitions: frozenset[PartitionValues] | None = None
    """The values of the key columns that a table is partitioned by; None for any values."""

    def union(self, other: KeyBounds) -> KeyBounds:
        """Return the bounds of the files of both."""
        ranges = {
            name: _union(one, other.ranges[name])
            for name, one in self.ranges.items()
            if name in other.ranges
        }
        if self.partitions is None or other.partitions is None:
            return KeyBounds(ranges)
        return KeyBounds(ranges, self.partitions | other.partitions)

    def overlaps(self, other: KeyBounds) -> bool:
        """Return whether a key may be in both."""
        ours, theirs = self.partitions, other.partitions
        if ours is not None and theirs is not None and ours.isdisjoint(theirs):
            return False
        for name, (low, high) in self.ranges.items():
            if name in other.ranges:
                least, greatest = other.ranges[name]
                if high < least or greatest < low:
                    return False
        return True


class KeyObserver:
    """Collects the bounds of the keys of rows while they are written."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(keys)
        self._ranges: dict[str, Range] = {}

    def observe(self, rows: pa.RecordBatch) -> None:
        """Add rows in the types that the table stores, without nulls in their keys."""
        for name in self._keys:
            if rows.num_rows and (values := to_comparable(rows.column(name))) is not None:
                found = pc.min_max(values).as_py()
                range_ = (found["min"], found["max"])
                known = self._ranges.get(name)
                self._ranges[name] = range_ if known is None else _union(known, range_)

    def bounds(self) -> KeyBounds:
        return KeyBounds(dict(self._ranges))


def to_comparable(values: pa.Array) -> pa.Array | None:
    """Return values as integers or strings of the same order; None for types without bounds."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.int64())
    return values if pa.types.is_integer(kind) or pa.types.is_string(kind) else None


def range_from_log(kind: pa.DataType, low: Any, high: Any) -> Range | None:
    """Return the range of a column of this type from a log's bounds in `to_comparable` form."""
    if low is None or high is None:
        return None
    if pa.types.is_timestamp(kind):
        return low - _TOLERANCE_US, high + _TOLERANCE_US
    return low, high


def limit_to_partitions(bounds: KeyBounds, partitions: Iterable[PartitionValues]) -> KeyBounds:
    """Return the bounds of rows that are in these partitions only."""
    return replace(bounds, partitions=frozenset(partitions))


def union_all(bounds: Sequence[KeyBounds]) -> KeyBounds:
    """Return the bounds of the files of all, of which there is at least one."""
    first, *others = bounds
    for other in others:
        first = first.union(other)
    return first


def _union(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])
