"""A file's statistics as the Delta log has them.

After the Delta protocol, section "Per-file Statistics": numRecords, and of the
leading columns nullCount, minValues and maxValues, which readers skip files by.
The bounds come from the parquet footer, which has them for nothing.

A bound that is missing costs a reader time; one that is wrong costs it rows. So
there is none where a doubt is possible: for a float column with NaN, which the
footer leaves out of its bounds while Spark and DuckDB order it after all other
values, for infinite floats, which JSON cannot write, and for times past the
year 9999. And where one column has none, no column of the file gets one:
deltalake 1.6 reads a missing bound next to others as ``column >= null``, by
which its pyarrow dataset skips the file for every filter on that column.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mrflight.sinks.parts.parquet_leaves import leaf_paths

if TYPE_CHECKING:
    import pyarrow.parquet as pq

INDEXED_COLUMNS = 32
"""Delta's default of ``delta.dataSkippingNumIndexedCols``."""
STRING_BOUND_LENGTH = 32
"""Characters of a string bound, as Delta's own writers keep."""

_FOOTER_BOUND_BYTES = 4096
"""parquet-cpp leaves longer bounds out of the footer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_CODE_POINT = 0x10FFFF
_EXACT = Context(prec=38)

Range = tuple[Any, Any]
"""A least and a greatest value."""


class _Column(msgspec.Struct, frozen=True):
    """A column that has statistics, and which of parquet's leaves it is."""

    name: str
    type: pa.DataType
    leaf: int


class FileStatistics:
    """Gathers what the log says of one file."""

    def __init__(self, schema: pa.Schema, indexed_columns: int) -> None:
        """``indexed_columns`` counts leaves, as Delta does; all of them where it is negative."""
        self._columns = _indexed(schema, indexed_columns)
        self._rows = 0
        self._nulls = {column.name: 0 for column in self._columns}
        self._long_strings: dict[str, Range] = {}

    def observe(self, rows: pa.Table) -> None:
        """Note what the footer will not say of ``rows``, which are about to be written.

        A column may be of one dictionary, which has no values but theirs.
        """
        self._rows += rows.num_rows
        for column in self._columns:
            values = rows.column(column.name)
            self._nulls[column.name] += values.null_count
            if not pa.types.is_string(column.type):
                continue
            if pa.types.is_dictionary(values.type):
                values = pa.chunked_array([each.dictionary for each in values.chunks], pa.string())
            if _is_long(values):
                range_ = _range_of_prefixes(values)
                self._long_strings[column.name] = _joined(
                    self._long_strings.get(column.name), range_
                )

    def to_json(self, footer: pq.FileMetaData) -> str:
        """The statistics of the file, which has this footer now."""
        statistics: dict[str, Any] = {"numRecords": self._rows, "nullCount": self._nulls}
        minima: dict[str, Any] = {}
        maxima: dict[str, Any] = {}
        for column in self._columns:
            if pa.types.is_binary(column.type) or self._nulls[column.name] == self._rows:
                continue  # deltalake expects none
            bounds = self._bounds(column, footer)
            if bounds is None:
                break
            minima[column.name], maxima[column.name] = bounds
        else:
            statistics |= {"minValues": minima, "maxValues": maxima}
        return msgspec.json.encode(statistics).decode()

    def _bounds(self, column: _Column, footer: pq.FileMetaData) -> Range | None:
        """The column's bounds as JSON values; None where there is one without."""
        found = self._long_strings.get(column.name)
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(column.leaf)
            stats = chunk.statistics
            if stats is None:
                return None
            if stats.has_min_max:
                found = _joined(found, _values(column.type, stats.min_raw, stats.max_raw))
            elif column.name not in self._long_strings and stats.null_count < chunk.num_values:
                return None
        if found is None:
            return None
        low, high = _lower(column.type, found[0]), _upper(column.type, found[1])
        return None if low is None or high is None else (low, high)


def _indexed(schema: pa.Schema, indexed_columns: int) -> list[_Column]:
    """The columns with statistics: of those that count, the flat ones."""
    columns, leaf = [], 0
    for field in schema:
        leaves = len(leaf_paths(field))
        if 0 <= indexed_columns < leaf + leaves:
            break
        if not pa.types.is_nested(field.type):
            columns.append(_Column(field.name, field.type, leaf))
        leaf += leaves
    return columns


def _joined(one: Range | None, other: Range) -> Range:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _values(kind: pa.DataType, low: Any, high: Any) -> Range:
    """Bounds as the footer has them, as values that compare as the column's do."""
    if pa.types.is_decimal(kind) and isinstance(low, bytes):  # of more digits than an int64 has
        return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)
    if pa.types.is_string(kind):
        return low.decode(), high.decode()
    return low, high


def _is_long(values: pa.ChunkedArray) -> bool:
    longest = pc.max(pc.binary_length(values)).as_py()
    return longest is not None and longest > _FOOTER_BOUND_BYTES


def _range_of_prefixes(values: pa.ChunkedArray) -> Range:
    """Of the strings' beginnings, one character longer than a bound, which shows a cut."""
    beginnings = pc.utf8_slice_codeunits(values, 0, STRING_BOUND_LENGTH + 1)
    found = pc.min_max(beginnings).as_py()
    return found["min"], found["max"]


def _lower(kind: pa.DataType, value: Any) -> Any:
    """The JSON value of a lower bound; None for none."""
    if pa.types.is_string(kind):
        return value[:STRING_BOUND_LENGTH]
    if pa.types.is_floating(kind) and value == 0:
        return -0.0  # below 0.0 for readers that tell them apart
    return _either(kind, value)


def _upper(kind: pa.DataType, value: Any) -> Any:
    """The JSON value of an upper bound; None for none."""
    if pa.types.is_string(kind):
        return string_upper_bound(value)
    if pa.types.is_floating(kind) and value == 0:
        return 0.0
    return _either(kind, value)


def _either(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_floating(kind):
        return value if abs(value) != float("inf") else None
    if pa.types.is_decimal(kind):
        # Every digit: as a float it would be rounded.
        return msgspec.Raw(format(Decimal(value).scaleb(-kind.scale, _EXACT), "f").encode())
    if pa.types.is_date32(kind):
        return _date(value)
    if pa.types.is_timestamp(kind):
        return _timestamp(value, kind.tz is not None)
    return value


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
