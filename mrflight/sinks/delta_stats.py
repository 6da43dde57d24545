"""A file's statistics as the Delta log has them, from its parquet footer.

After the Delta protocol, section "Per-file Statistics": numRecords, and of the
leading columns nullCount, minValues and maxValues, which readers skip files by.
A bound that is missing costs a reader time; one that is wrong costs it rows. So
there is none wherever there is a doubt: for a float column with NaN (which the
footer leaves out of its bounds, while Spark and DuckDB order it after all
others), for infinite floats, for times past the year 9999, for bool, binary and
nested columns, whose bounds Delta does not use.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from mrflight.sinks.parquet_leaves import leaf_paths

if TYPE_CHECKING:
    import pyarrow.parquet as pq

INDEXED_COLUMNS = 32
"""Delta's default of ``delta.dataSkippingNumIndexedCols``."""
STRING_BOUND_LENGTH = 32
"""Characters of a string bound, as Delta's own writers keep."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_CODE_POINT = 0x10FFFF
_EXACT = Context(prec=38)


def file_stats(
    footer: pq.FileMetaData, schema: pa.Schema, nan_columns: Collection[str], indexed_columns: int
) -> str:
    """The statistics of a file with columns ``schema``, JSON.

    ``indexed_columns`` counts leaves, as Delta does; all of them where it is negative.
    ``nan_columns`` are those with NaN in some row.
    """
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaf = 0
    for field in schema:
        leaves = len(leaf_paths(field))
        if 0 <= indexed_columns < leaf + leaves:
            break
        if not pa.types.is_nested(field.type):
            column = _Column(footer, leaf, field.type)
            if column.null_count is not None:
                nulls[field.name] = column.null_count
            if field.name not in nan_columns:
                _put(minima, field.name, _lower(field.type, column.minimum))
                _put(maxima, field.name, _upper(field.type, column.maximum))
        leaf += leaves
    return msgspec.json.encode(
        {
            "numRecords": footer.num_rows,
            "minValues": minima,
            "maxValues": maxima,
            "nullCount": nulls,
        }
    ).decode()


class _Column:
    """A leaf over all row groups: its bounds as parquet's physical values, None where unknown."""

    def __init__(self, footer: pq.FileMetaData, leaf: int, kind: pa.DataType) -> None:
        ordered = _unscaled if pa.types.is_decimal(kind) else _as_is
        self.minimum: Any = None
        self.maximum: Any = None
        self.null_count: int | None = 0
        bounded = True
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(leaf)
            stats = chunk.statistics
            if stats is None or not stats.has_null_count:
                self.null_count, bounded = None, False
                break
            if self.null_count is not None:
                self.null_count += stats.null_count
            if stats.has_min_max:
                low, high = ordered(stats.min_raw), ordered(stats.max_raw)
                self.minimum = low if self.minimum is None else min(self.minimum, low)
                self.maximum = high if self.maximum is None else max(self.maximum, high)
            elif stats.null_count < chunk.num_values:  # too long for the footer, or only NaN
                bounded = False
        if not bounded:
            self.minimum = self.maximum = None


def _as_is(raw: Any) -> Any:
    return raw


def _unscaled(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _put(bounds: dict[str, Any], column: str, value: Any) -> None:
    if value is not None:
        bounds[column] = value


def _lower(kind: pa.DataType, raw: Any) -> Any:
    """The JSON value of a lower bound; None for none."""
    if raw is None:
        return None
    if pa.types.is_string(kind):
        return raw.decode()[:STRING_BOUND_LENGTH]
    if pa.types.is_floating(kind) and raw == 0:
        return -0.0  # below 0.0 for readers that tell them apart
    return _either(kind, raw)


def _upper(kind: pa.DataType, raw: Any) -> Any:
    """The JSON value of an upper bound; None for none."""
    if raw is None:
        return None
    if pa.types.is_string(kind):
        return string_upper_bound(raw.decode())
    if pa.types.is_floating(kind) and raw == 0:
        return 0.0
    return _either(kind, raw)


def _either(kind: pa.DataType, raw: Any) -> Any:
    if pa.types.is_integer(kind):
        return raw
    if pa.types.is_floating(kind):
        return raw if abs(raw) != float("inf") else None
    if pa.types.is_decimal(kind):
        # Every digit: as a float it would be rounded.
        return msgspec.Raw(format(Decimal(raw).scaleb(-kind.scale, _EXACT), "f").encode())
    if pa.types.is_date32(kind):
        return _date(raw)
    if pa.types.is_timestamp(kind):
        return _timestamp(raw, kind.tz is not None)
    return None


def string_upper_bound(value: str) -> str | None:
    """At most `STRING_BOUND_LENGTH` characters that sort at or after ``value``; None for none.

    A cut one ends in the next code point: UTF-8 sorts as code points do.
    """
    if len(value) <= STRING_BOUND_LENGTH:
        return value
    for end in range(STRING_BOUND_LENGTH, 0, -1):
        last = ord(value[end - 1])
        if last < _LAST_CODE_POINT:
            after = 0xE000 if last == 0xD7FF else last + 1  # past the surrogates
            return value[: end - 1] + chr(after)
    return None


def _date(days: int) -> str | None:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _timestamp(microseconds: int, in_utc: bool) -> str | None:
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if in_utc else "")
