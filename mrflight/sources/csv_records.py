"""Csv whose quoted values may hold line ends: read from the start to the end, as one stream."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.csv as pc

from mrflight.errors import BadRowError
from mrflight.sources.csv_bad_row import CsvExpectation
from mrflight.sources.decompression import open_text, skip_bytes
from mrflight.sources.lines import CHUNK_BYTES, count_newlines_before
from mrflight.storage import Location

_ROW_NUMBER = re.compile(r"Row #(\d+)")


def read_records(
    location: Location, begin: int, expected: CsvExpectation
) -> Iterator[pa.RecordBatch]:
    """All rows from byte ``begin`` on; BadRowError names the line that a wrong one begins on."""
    try:
        yield from _stream(location, begin, expected)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise _bad_row(location, begin, expected, str(error)) from error


def _stream(location: Location, begin: int, expected: CsvExpectation) -> Iterator[pa.RecordBatch]:
    if not _has_more(location, begin):  # pyarrow refuses to open nothing
        return
    with open_text(location) as stream:
        skip_bytes(stream, begin)
        yield from pc.open_csv(
            stream,
            pc.ReadOptions(
                use_threads=False, block_size=CHUNK_BYTES, column_names=list(expected.columns)
            ),
            pc.ParseOptions(delimiter=expected.delimiter, newlines_in_values=True),
            pc.ConvertOptions(column_types=expected.types, include_columns=list(expected.include)),
        )


def _has_more(location: Location, begin: int) -> bool:
    with open_text(location) as stream:
        skip_bytes(stream, begin)
        return bool(stream.read(1))


def _bad_row(location: Location, begin: int, expected: CsvExpectation, reason: str) -> BadRowError:
    number = _ROW_NUMBER.search(reason)
    found = _find_record(location, begin, int(number[1]), expected.delimiter) if number else None
    if found is not None:
        return expected.explain(location.url, *found, reason)
    if "straddl" in reason:
        return BadRowError(
            f"{location.url} has a row of more than {CHUNK_BYTES >> 20} MiB; "
            "close the quote that probably lies open before it"
        )
    return BadRowError(f"{location.url} cannot be read as csv: {reason}")


def _find_record(
    location: Location, begin: int, number: int, delimiter: str
) -> tuple[int, bytes] | None:
    """The line that a record begins on, and its bytes; records are counted from 1."""
    line = 1 + count_newlines_before(location, begin)
    taken: list[str] = []
    with open_text(location) as stream:
        skip_bytes(stream, begin)
        # latin-1 keeps every byte as it is.
        lines = _noted(io.TextIOWrapper(stream, encoding="latin-1", newline=""), taken)
        try:
            for record in csv.reader(lines, delimiter=delimiter):
                number -= bool(record)
                if number == 0:
                    return line, "".join(taken).encode("latin-1")
                line += len(taken)
                taken.clear()
        except csv.Error:  # a value of more than 128 KiB
            return None
    return None


def _noted(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    """The lines, each also put into ``taken`` as it is asked for."""
    for line in lines:
        taken.append(line)
        yield line
