"""Numbers of csv with a separator between their digits, such as 1,234,567.

pyarrow does not know such a separator, so these columns are read as strings first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.csv
from pyarrow import types

from mrflight.compute import arrow_compute as pc
from mrflight.config.text_options import CsvOptions


class SeparatedNumbers(msgspec.Struct, frozen=True):
    """Parses the columns of numbers in batches whose rows pyarrow has read."""

    types: Mapping[str, pa.DataType]
    """The types to read columns with; others are inferred."""
    separator: str
    decimal: str
    null_values: pa.Array

    @property
    def raw_types(self) -> dict[str, pa.DataType]:
        """The types with which pyarrow is to read the columns."""
        return {
            name: pa.string() if _is_number(kind) else kind for name, kind in self.types.items()
        }

    def parse(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its numbers; raise ArrowInvalid for a value that is none."""
        columns = [self._parsed(name, batch.column(name)) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _parsed(self, name: str, column: pa.Array) -> pa.Array:
        kind = self.types.get(name)
        if kind is not None:
            return self._numbers(column, kind) if _is_number(kind) else column
        if not types.is_string(column.type) or column.null_count == len(column):
            return column
        for kind in (pa.int64(), pa.float64()):
            try:
                return self._numbers(column, kind)
            except pa.ArrowInvalid:
                continue
        return column

    def _numbers(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        is_null = pc.is_in(column, self.null_values)
        text = pc.ascii_trim_whitespace(pc.if_else(is_null, pa.scalar(None, pa.string()), column))
        has_separator = pc.match_substring(text, self.separator)
        if pc.any(has_separator).as_py():
            is_wrong = pc.and_not(has_separator, pc.match_substring_regex(text, self._pattern))
            _check_none(is_wrong, text, kind)
            text = pc.replace_substring(text, self.separator, "")
        if self.decimal != ".":
            _check_none(pc.match_substring(text, "."), text, kind)
            text = pc.replace_substring(text, self.decimal, ".")
        return text.cast(kind)

    @property
    def _pattern(self) -> str:
        """Groups of two or three digits, as in India and elsewhere, and three at the end."""
        separator, decimal = re.escape(self.separator), re.escape(self.decimal)
        groups = rf"[0-9]{{1,3}}(?:{separator}[0-9]{{2,3}})*{separator}[0-9]{{3}}"
        return rf"^[-+]?{groups}(?:{decimal}[0-9]*)?(?:[eE][-+]?[0-9]+)?$"


def _check_none(is_wrong: pa.Array, text: pa.Array, kind: pa.DataType) -> None:
    """Raise ArrowInvalid for the first text that is no number."""
    for value in text.filter(is_wrong)[:1]:
        raise pa.ArrowInvalid(f"CSV conversion error to {kind}: invalid value {value.as_py()!r}")


def separated_numbers(
    types: Mapping[str, pa.DataType], options: CsvOptions
) -> SeparatedNumbers | None:
    """Return the parser of a dialect; None if it has no separator in numbers."""
    if options.thousands is None:
        return None
    nulls = options.null_values
    if nulls is None:
        nulls = pyarrow.csv.ConvertOptions().null_values
    return SeparatedNumbers(types, options.thousands, options.decimal, pa.array(nulls, pa.string()))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
