"""Between what the keys of a file lie, so that a merge need not read every file of a table.

A bound that is missing costs time; one that is wrong would leave two rows of one key. So there
are none for types whose bounds in a log may be rounded (floats, decimals) or are read in several
ways (binary), and moments get some room: other writers cut theirs to milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

Range = tuple[Any, Any]
"""A least and a greatest value, integers or strings."""
Values = tuple[str | None, ...]
"""The texts of partition values."""

_ROOM_US = 1000
"""That a moment may be beyond its bound in a log."""


class KeyBounds(msgspec.Struct, frozen=True):
    """What is known of the keys in some files."""

    ranges: Mapping[str, Range] = msgspec.field(default_factory=dict)
    """By column; one that is missing may hold anything."""
    partitions: frozenset[Values] | None = None
    """The values of those key columns that a table is partitioned by; None for any."""

    def joined(self, other: KeyBounds) -> KeyBounds:
        """Of the files of both."""
        ranges = {
            name: _joined(one, other.ranges[name])
            for name, one in self.ranges.items()
            if name in other.ranges
        }
        if self.partitions is None or other.partitions is None:
            return KeyBounds(ranges)
        return KeyBounds(ranges, self.partitions | other.partitions)

    def may_share(self, other: KeyBounds) -> bool:
        """Whether a key may be in both."""
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
    """Gathers the bounds of rows as they are written."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(keys)
        self._ranges: dict[str, Range] = {}

    def observe(self, rows: pa.RecordBatch) -> None:
        """Rows in the types that the table stores, without nulls in their keys."""
        import pyarrow.compute as pc

        for name in self._keys:
            if rows.num_rows and (values := ordered_values(rows.column(name))) is not None:
                found = pc.min_max(values).as_py()
                range_ = (found["min"], found["max"])
                known = self._ranges.get(name)
                self._ranges[name] = range_ if known is None else _joined(known, range_)

    def bounds(self) -> KeyBounds:
        return KeyBounds(dict(self._ranges))


def ordered_values(values: pa.Array) -> pa.Array | None:
    """Values as integers or strings that compare as they do; None for types without bounds."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.int64())
    return values if pa.types.is_integer(kind) or pa.types.is_string(kind) else None


def logged_range(kind: pa.DataType, low: Any, high: Any) -> Range | None:
    """The range of a column of this type by what `ordered_values` makes of a log's bounds."""
    if low is None or high is None:
        return None
    if pa.types.is_timestamp(kind):
        return low - _ROOM_US, high + _ROOM_US
    return low, high


def in_partitions(bounds: KeyBounds, partitions: Iterable[Values]) -> KeyBounds:
    """The same of rows in these partitions only."""
    return replace(bounds, partitions=frozenset(partitions))


def all_joined(bounds: Sequence[KeyBounds]) -> KeyBounds:
    """Of all of them, of which there is at least one."""
    first, *others = bounds
    for other in others:
        first = first.joined(other)
    return first


def _joined(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])
