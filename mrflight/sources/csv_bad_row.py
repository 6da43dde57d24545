"""Explain why a record of a csv file cannot be read, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.csv as pc

from mrflight.config.text_options import CsvOptions
from mrflight.sources.bad_row_search import shorten
from mrflight.sources.chunk import Chunk
from mrflight.sources.csv_decoder import CsvDecoder
from mrflight.sources.csv_dialect import encoding_of, parse_options

_COLUMN = re.compile(r"In CSV column #(\d+)")


class CsvExpectation(msgspec.Struct, frozen=True):
    """The expected columns and types of a file, and which of the types the job file sets."""

    format: ClassVar[str] = "csv"

    input_name: str
    columns: Sequence[str]
    """All columns, in the order of the file."""
    include: Sequence[str]
    """The columns to read, in the order of the batches."""
    types: Mapping[str, pa.DataType]
    """The types of the included columns; a type that is missing here is inferred."""
    declared: frozenset[str]
    """The columns whose type the job file sets; other types are inferred."""
    options: CsvOptions

    def decoder(self) -> CsvDecoder:
        return CsvDecoder(self.columns, self.include, self.types, self.options)

    def explain(self, record: bytes, reason: str) -> str:
        """Explain why ``record`` cannot be read; ``reason`` is pyarrow's message."""
        encoding = encoding_of(self.options)
        try:
            text = encoding.decode(record, "replace" if encoding.codec == "utf-8" else "strict")
        except UnicodeDecodeError as error:
            bad = error.object[error.start :]
            bad = (bad.rstrip(b"\r\n") or bad)[:100]
            key = f"inputs.{self.input_name}.csv.encoding"
            return f"{bad!r} is not {encoding.codec}; correct it, or set {key}"
        in_utf8 = record if encoding.codec == "utf-8" else text.encode()
        text = repr(shorten(text))
        fields = self._fields(in_utf8)
        if fields is None and b"\r" in record.rstrip(b"\r\n"):  # the line ends of old Macs
            return f"{text} cannot be read: {reason}"
        if fields is None:
            what = "a quoted value" if self.options.escape is None else "a quoted or escaped value"
            return (
                f"{what} does not end on its line: {text}; close the quote, or "
                f"set inputs.{self.input_name}.csv.newlines_in_values = true"
            )
        is_short = len(fields) < len(self.columns)
        if len(fields) > len(self.columns) or (is_short and not self.options.allow_missing_columns):
            return (
                f"{_count(len(fields), 'field')} for "
                f"{_count(len(self.columns), 'column')}: {text}; correct the line, or quote "
                f"a value that contains the delimiter {self.options.delimiter!r}"
            )
        for column, type in self._with_named_first(reason):
            if column not in self.columns[: len(fields)]:
                continue
            value = fields[self.columns.index(column)]
            if not self._converts(record, column, type):
                return self._explain_value(column, type, value)
        return f"{text} cannot be read: {reason}"

    def _with_named_first(self, reason: str) -> list[tuple[str, pa.DataType]]:
        """Return the types, and first the one of the column that pyarrow's message names.

        It is probably the bad one, unless the message is about several rows.
        """
        found = _COLUMN.match(reason)
        named = self.columns[int(found[1])] if found is not None else None
        return sorted(self.types.items(), key=lambda each: each[0] != named)

    def _explain_value(self, column: str, type: pa.DataType, value: bytes) -> str:
        key = f"inputs.{self.input_name}.types.{column}"
        try:
            shown = repr(shorten(value.decode()))
        except UnicodeDecodeError:
            return (
                f"column {column!r} has {value[:100]!r}, which is not UTF-8; set "
                f'inputs.{self.input_name}.csv.encoding, or {key} = "binary"'
            )
        if column in self.declared:
            return f"column {column!r} has {shown}, but {key} is {type}; correct one of them"
        return (
            f"column {column!r} has {shown}, but its type was inferred as {type} from the first "
            f'lines of the input; correct the value, or set {key} = "string" or another type'
        )

    def _converts(self, record: bytes, column: str, type: pa.DataType) -> bool:
        decoder = CsvDecoder(self.columns, [column], {column: type}, self.options)
        try:
            decoder.decode(Chunk.of(record))
        except ValueError:
            return False
        return True

    def _fields(self, record: bytes) -> list[bytes] | None:
        """Return the raw fields; None if a quote is not closed, which would absorb a second row."""
        whole = record.rstrip(b"\r\n") + b"\n"
        try:
            names = self._parsed(whole + whole, {}).column_names
            rows = self._parsed(whole + whole, dict.fromkeys(names, pa.binary()))
        except pa.ArrowInvalid:
            return None
        return [column[0].as_py() for column in rows.columns] if rows.num_rows == 2 else None

    def _parsed(self, data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
        return pc.read_csv(
            pa.BufferReader(data),
            pc.ReadOptions(use_threads=False, autogenerate_column_names=True),
            parse_options(self.options, newlines_in_values=True),
            pc.ConvertOptions(column_types=types),
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
