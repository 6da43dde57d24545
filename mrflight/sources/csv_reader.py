"""Read the rows of csv files, split by split.

Normally a row is a line, and a split is read as chunks of whole lines. With ``newlines_in_values``
quoted values may contain line ends, so a file is one split and is read as one stream.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.csv as pc

from mrflight.config.text_options import CsvOptions
from mrflight.errors import BadRowError
from mrflight.sources.bad_row_search import how_to_skip
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import FileReader, Split
from mrflight.sources.chunk import CHUNK_BYTES
from mrflight.sources.csv_bad_row import CsvExpectation
from mrflight.sources.csv_dialect import (
    convert_options,
    encoding_of,
    parse_options,
    records,
)
from mrflight.sources.csv_header import HeaderReader, options_of_file
from mrflight.sources.csv_records import TOO_LONG, RecordSplitter, read_record_chunks
from mrflight.sources.line_numbers import count_lines, count_newlines_before
from mrflight.sources.read_checks import translate_read_errors, verify_unchanged
from mrflight.sources.text_file import TextFile, open_text, skip_bytes
from mrflight.sources.text_source import RowsOfFile, decode_chunks, read_lines

_ROW_NUMBER = re.compile(r"Row #(\d+)")


@dataclass(frozen=True)
class CsvReader(FileReader):
    """Reads csv with the columns and types of ``schema``; a file may have them in any order."""

    input_name: str
    schema: pa.Schema
    declared: frozenset[str]
    """The columns whose type the job file sets."""
    options: CsvOptions
    bad_rows: BadRowLog | None = None
    """Takes the rows that cannot be read; None if these are errors."""

    def with_bad_rows(self, log: BadRowLog) -> CsvReader:
        return self if self.bad_rows is None else replace(self, bad_rows=log)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        expectations, encoding = _Expectations(self), encoding_of(self.options)
        if not self.options.newlines_in_values:
            yield from read_lines(
                self.root, split, "csv", encoding, expectations.of_file, self.bad_rows
            )
            return
        for piece in split.pieces:
            location = self.root.at(piece.path)
            with (
                translate_read_errors("csv", location),
                verify_unchanged(location, piece.version) as location,
            ):
                file = TextFile(location, encoding)
                rows = expectations.of_file(file)
                if rows is not None:
                    batches = read_stream(file, rows.begin, rows.expected, self.bad_rows)
                    yield from (batch for batch in batches if batch.num_rows)


class _Expectations:
    """Reads the headers of files, and keeps what they let expect."""

    def __init__(self, reader: CsvReader) -> None:
        self._reader = reader
        self._headers = HeaderReader(reader.options, reader.input_name)
        self._known: dict[tuple[tuple[str, ...], str], CsvExpectation] = {}

    def of_file(self, file: TextFile) -> RowsOfFile[CsvExpectation] | None:
        """Return what the header of a file tells about its rows; None if the file is empty."""
        header, reader = self._headers.read(file), self._reader
        if header is None:
            return None
        options = options_of_file(reader.options, file.location.path)
        key = header.columns, options.delimiter
        if key not in self._known:
            self._known[key] = CsvExpectation(
                input_name=reader.input_name,
                columns=header.columns,
                include=reader.schema.names,
                types={field.name: field.type for field in reader.schema},
                declared=reader.declared,
                options=options,
            )
        return RowsOfFile(header.size, self._known[key])


def read_stream(
    file: TextFile, begin: int, expected: CsvExpectation, bad_rows: BadRowLog | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows from byte ``begin``; values may contain line ends.

    Raises BadRowError with the line on which a bad row begins, unless ``bad_rows`` takes it.
    """
    options = expected.options
    if (
        bad_rows is not None
        or options.thousands
        or options.comment
        or options.allow_missing_columns
    ):
        yield from _decode_records(file, begin, expected, bad_rows)
        return
    try:
        yield from _decode_stream(file, begin, expected)
    except UnicodeDecodeError as error:
        for _ in _decode_records(file, begin, expected, bad_rows):
            pass  # until the error that names the line
        raise BadRowError(f"{file.url} cannot be read as csv: {error}") from error
    except pa.ArrowInvalid as error:
        raise _bad_record(file, begin, expected, str(error)) from error


def _decode_records(
    file: TextFile, begin: int, expected: CsvExpectation, bad_rows: BadRowLog | None
) -> Iterator[pa.RecordBatch]:
    chunks = read_record_chunks(file, begin, RecordSplitter(expected.options))
    yield from decode_chunks(((expected, each) for each in count_lines(chunks)), bad_rows)


def _decode_stream(
    file: TextFile, begin: int, expected: CsvExpectation
) -> Iterator[pa.RecordBatch]:
    if not _has_more(file, begin):  # pyarrow raises an error for an empty stream
        return
    with open_text(file, strict=True) as stream:
        skip_bytes(stream, begin)
        yield from pc.open_csv(
            stream,
            pc.ReadOptions(
                use_threads=False, block_size=CHUNK_BYTES, column_names=list(expected.columns)
            ),
            parse_options(expected.options, newlines_in_values=True),
            convert_options(expected.options, expected.types, expected.include),
        )


def _has_more(file: TextFile, begin: int) -> bool:
    with open_text(file) as stream:
        skip_bytes(stream, begin)
        return bool(stream.read(1))


def _bad_record(file: TextFile, begin: int, expected: CsvExpectation, reason: str) -> BadRowError:
    number = _ROW_NUMBER.search(reason)
    found = _find_record(file, begin, int(number[1]), expected.options) if number else None
    if found is not None:
        line, record = found
        return BadRowError(
            f"{file.url}, line {line}: {expected.explain(record, reason)}"
            f"{how_to_skip(expected.input_name)}"
        )
    if "straddl" in reason:
        return BadRowError(f"{file.url} {TOO_LONG}")
    return BadRowError(f"{file.url} cannot be read as csv: {reason}")


def _find_record(
    file: TextFile, begin: int, number: int, options: CsvOptions
) -> tuple[int, bytes] | None:
    """Return the line on which a record begins, and its bytes; records are counted from 1."""
    line = 1 + count_newlines_before(file, begin)
    consumed: list[str] = []
    with open_text(file) as stream:
        skip_bytes(stream, begin)
        # latin-1 keeps every byte as it is.
        text = io.TextIOWrapper(stream, encoding="latin-1", newline="")
        try:
            for record in records(_recorded(text, consumed), options):
                number -= bool(record)
                if number == 0:
                    return line, "".join(consumed).encode("latin-1")
                line += len(consumed)
                consumed.clear()
        except csv.Error:  # a value of more than 128 KiB
            return None
    return None


def _recorded(lines: Iterable[str], consumed: list[str]) -> Iterator[str]:
    """Yield the lines, and append each one to ``consumed``."""
    for line in lines:
        consumed.append(line)
        yield line
