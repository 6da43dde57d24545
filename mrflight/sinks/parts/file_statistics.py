"""The statistics of a file in the form of the Delta log.

They follow the Delta protocol, section "Per-file Statistics": numRecords, and for the leading
columns nullCount, minValues and maxValues, by which readers skip files. The bounds are taken from
the parquet footer, where they cost nothing.

A missing bound costs a reader time, but a wrong bound costs it rows. So a column has no bounds in
cases of doubt: for floats with NaN, which the footer leaves out of its bounds while Spark and
DuckDB order it after all other values; for infinite floats, which JSON cannot write; and for times
past the year 9999. If one column has no bounds, no column of the file gets any: deltalake 1.6
reads a missing bound next to others as ``column >= null``, so that its pyarrow dataset skips the
file for every filter on that column.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.arrays import longest_string

if TYPE_CHECKING:
    import pyarrow.parquet as pq

INDEXED_COLUMNS = 32
"""Delta's default of ``delta.dataSkippingNumIndexedCols``."""
STRING_BOUND_LENGTH = 32
"""The characters of a string bound that are kept. Delta's own writers keep as many."""

_FOOTER_BOUND_BYTES = 4096
"""parquet-cpp leaves longer bounds out of the footer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_CODE_POINT = 0x10FFFF
_EXACT = Context(prec=38)

Range = tuple[Any, Any]
"""A minimum and a maximum."""


class _Column(msgspec.Struct, frozen=True):
    """A column that has statistics, and its position among parquet's leaves."""

    name: str
    type: pa.DataType
    leaf: int


class FileStatistics:
    """Collects the statistics of one file while it is written."""

    def __init__(self, schema: pa.Schema, indexed_columns: int) -> None:
        """``indexed_columns`` counts leaves, as Delta does; a negative number means all of them."""
        self._columns = _indexed_columns(schema, indexed_columns)
        self._rows = 0
        self._nulls = {column.name: 0 for column in self._columns}
        self._long_strings: dict[str, Range] = {}

    def observe(self, rows: pa.Table) -> None:
        """Collect what the footer will not have for ``rows``, which are about to be written.

        A column may have one dictionary, of which every value is in the rows.
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
                self._long_strings[column.name] = _union(
                    self._long_strings.get(column.name), range_
                )

    def to_json(self, footer: pq.FileMetaData) -> str:
        """Return the statistics of the finished file, which has this footer."""
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
        """Return the column's bounds as JSON values; None if a row group has none."""
        found = self._long_strings.get(column.name)
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(column.leaf)
            stats = chunk.statistics
            if stats is None:
                return None
            if stats.has_min_max:
                found = _union(found, _parse_bounds(column.type, stats.min_raw, stats.max_raw))
            elif column.name not in self._long_strings and stats.null_count < chunk.num_values:
                return None
        if found is None:
            return None
        low, high = _lower(column.type, found[0]), _upper(column.type, found[1])
        return None if low is None or high is None else (low, high)


def _indexed_columns(schema: pa.Schema, indexed_columns: int) -> list[_Column]:
    """Return the columns with statistics: those among the leading leaves that are not nested."""
    columns, leaf = [], 0
    for field in schema:
        leaves = len(leaf_paths(field))
        if 0 <= indexed_columns < leaf + leaves:
            break
        if not pa.types.is_nested(field.type):
            columns.append(_Column(field.name, field.type, leaf))
        leaf += leaves
    return columns


def _union(one: Range | None, other: Range) -> Range:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _parse_bounds(kind: pa.DataType, low: Any, high: Any) -> Range:
    """Return the bounds of a footer as values that compare as the column's values do."""
    if pa.types.is_decimal(kind) and isinstance(low, bytes):  # more digits than an int64 has
        return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)
    if pa.types.is_string(kind):
        return low.decode(), high.decode()
    return low, high


def _is_long(values: pa.ChunkedArray) -> bool:
    return any(longest_string(each) > _FOOTER_BOUND_BYTES for each in values.chunks)


def _range_of_prefixes(values: pa.ChunkedArray) -> Range:
    """Return the bounds of the prefixes, one character longer than a bound to show a cut."""
    prefixes = pc.utf8_slice_codeunits(values, 0, STRING_BOUND_LENGTH + 1)
    found = pc.min_max(prefixes).as_py()
    return found["min"], found["max"]


def _lower(kind: pa.DataType, value: Any) -> Any:
    """Return the JSON value of a lower bound; None if there is none."""
    if pa.types.is_string(kind):
        return value[:STRING_BOUND_LENGTH]
    if pa.types.is_floating(kind) and value == 0:
        return -0.0  # lower than 0.0 for readers that distinguish them
    return _json_value(kind, value)


def _upper(kind: pa.DataType, value: Any) -> Any:
    """Return the JSON value of an upper bound; None if there is none."""
    if pa.types.is_string(kind):
        return string_upper_bound(value)
    if pa.types.is_floating(kind) and value == 0:
        return 0.0
    return _json_value(kind, value)


def _json_value(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_floating(kind):
        return value if abs(value) != float("inf") else None
    if pa.types.is_decimal(kind):
        # All digits are written, because a float would be rounded.
        return msgspec.Raw(format(Decimal(value).scaleb(-kind.scale, _EXACT), "f").encode())
    if pa.types.is_date32(kind):
        return _date(value)
    if pa.types.is_timestamp(kind):
        return _timestamp(value, kind.tz is not None)
    return value


def string_upper_bound(value: str) -> str | None:
    """Return at most `STRING_BOUND_LENGTH` characters that sort at or after ``value``.

    A bound that is cut ends in the next code point, as UTF-8 sorts by code points. The result is
    None if there is no such string.
    """
    if len(value) <= STRING_BOUND_LENGTH:
        return value
    for end in range(STRING_BOUND_LENGTH, 0, -1):
        last = ord(value[end - 1])
        if last < _LAST_CODE_POINT:
            after = 0xE000 if last == 0xD7FF else last + 1  # skip the surrogates
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


def leaf_paths(field: pa.Field) -> list[str]:
    """Return the paths of a field's leaves in parquet's schema; of a flat field its name."""
    kind, name = field.type, field.name
    if pa.types.is_struct(kind):
        return [f"{name}.{path}" for inner in kind for path in leaf_paths(inner)]
    if pa.types.is_map(kind):
        pair = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        return [f"{name}.key_value.{path}" for inner in pair for path in leaf_paths(inner)]
    if pa.types.is_nested(kind) and kind.num_fields == 1:  # every list
        return [f"{name}.list.{path}" for path in leaf_paths(kind.field(0).with_name("element"))]
    return [name]
