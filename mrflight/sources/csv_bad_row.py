"""Why one record of a csv file cannot be read, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.csv as pc

from mrflight.errors import BadRowError
from mrflight.sources.bad_lines import shortened
from mrflight.sources.csv_decoder import CsvDecoder
from mrflight.sources.lines import Chunk


class CsvExpectation(msgspec.Struct, frozen=True):
    """What the rows of a file should look like, and who said so."""

    input_name: str
    columns: Sequence[str]
    """All, in the order of the file."""
    include: Sequence[str]
    """Those that are read, in the order they are wanted in."""
    types: Mapping[str, pa.DataType]
    """Of the included columns; one that is not here yet is to be inferred."""
    declared: frozenset[str]
    """The columns whose type the job file sets; others are guessed."""
    delimiter: str

    def decoder(self) -> CsvDecoder:
        return CsvDecoder(self.columns, self.include, self.types, self.delimiter)

    def explain(self, url: str, line: int, record: bytes, reason: str) -> BadRowError:
        """The error for ``record``, which begins on ``line``; ``reason`` is pyarrow's."""
        text = repr(shortened(record.decode(errors="replace")))
        place = f"{url}, line {line}"
        fields = self._fields(record)
        if fields is None and b"\r" in record.rstrip(b"\r\n"):  # rows as old Macs ended them
            return BadRowError(f"{place}: {text} cannot be read: {reason}")
        if fields is None:
            return BadRowError(
                f"{place}: a quoted value does not end on its line: {text}; close the quote, or "
                f"set inputs.{self.input_name}.csv.newlines_in_values = true"
            )
        if len(fields) != len(self.columns):
            return BadRowError(
                f"{place}: {_count(len(fields), 'field')} where there are "
                f"{_count(len(self.columns), 'column')}: {text}; fix the line, or quote a value "
                f"that holds the delimiter {self.delimiter!r}"
            )
        for column, type in self.types.items():
            value = fields[self.columns.index(column)]
            if not self._converts(record, column, type):
                return BadRowError(f"{place}: {self._misfit(column, type, value)}")
        return BadRowError(f"{place}: {text} cannot be read: {reason}")

    def _misfit(self, column: str, type: pa.DataType, value: bytes) -> str:
        key = f"inputs.{self.input_name}.types.{column}"
        try:
            shown = repr(shortened(value.decode()))
        except UnicodeDecodeError:
            return (
                f"column {column!r} holds {value[:100]!r}, which is not UTF-8; convert the file, "
                f'or set {key} = "binary"'
            )
        if column in self.declared:
            return f"column {column!r} holds {shown}, not {type} as {key} says; fix one of them"
        return (
            f"column {column!r} holds {shown}, not {type} as guessed from the first lines of the "
            f'input; fix the value, or set {key} = "string" or another type'
        )

    def _converts(self, record: bytes, column: str, type: pa.DataType) -> bool:
        decoder = CsvDecoder(self.columns, [column], {column: type}, self.delimiter)
        try:
            decoder.decode(Chunk.of(record))
        except pa.ArrowInvalid:
            return False
        except ValueError:  # a line end in a value is allowed here, or was found before
            return True
        return True

    def _fields(self, record: bytes) -> list[bytes] | None:
        """The raw fields; None where a quote is left open, which would swallow a second row."""
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
            pc.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            pc.ConvertOptions(column_types=types),
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
