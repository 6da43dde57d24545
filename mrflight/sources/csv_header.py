"""Read the header of a csv file: the names of its columns, and where its rows begin."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from mrflight.config.text_options import CsvOptions
from mrflight.errors import InputError, JobFileError
from mrflight.sources.csv_dialect import encoding_of, is_skipped, records
from mrflight.sources.formats import is_tab_separated
from mrflight.sources.text_file import TextFile, open_text

HEADER_BLOCK_BYTES = 64 << 10
"""How much of a file is read for its header, unless it is longer."""

_MAX_HEADER_BYTES = 16 << 20


class CsvHeader(msgspec.Struct, frozen=True):
    """The columns of a file, and the size of what comes before its rows."""

    columns: tuple[str, ...]
    size: int
    """The bytes before the first row: byte order mark, skipped and blank lines, comments, and the
    header line."""


class _FirstRecord(msgspec.Struct, frozen=True):
    values: list[str]
    begin: int
    end: int
    lines: int


def options_of_file(options: CsvOptions, path: str) -> CsvOptions:
    """Return the options for one file: .tsv files have tabs unless a delimiter is set."""
    if options.delimiter == "," and is_tab_separated(path):
        return msgspec.structs.replace(options, delimiter="\t")
    return options


class HeaderReader:
    """Reads the headers of an input's files. Most have the same one, which is parsed once."""

    def __init__(self, options: CsvOptions, input_name: str) -> None:
        self._options = options
        self._input_name = input_name
        self._last: dict[str, tuple[bytes, CsvHeader]] = {}
        """The last header line that was parsed with a delimiter, and what it says."""

    def read(self, file: TextFile) -> CsvHeader | None:
        """Return the header of a file; None if the file is empty.

        Without a header line, the columns are ``column_names``, or f0, f1 and so on. Raises
        InputError for a header that cannot be read or names a column twice, and JobFileError if
        ``column_names`` has another number of columns than the file.
        """
        options = options_of_file(self._options, file.location.path)
        line, last = self._last.get(options.delimiter, (b"", None))
        with open_text(file) as stream:
            block = stream.read(HEADER_BLOCK_BYTES)
            if last is not None and block.startswith(line):
                return last
            try:
                record = _first_record(file, stream, block, options)
            except (csv.Error, UnicodeDecodeError) as error:
                raise InputError(
                    f"{file.url}: the first line cannot be read as a csv header in "
                    f"{encoding_of(options).codec.upper()}: {error}; if the file has another "
                    f"encoding, set inputs.{self._input_name}.csv.encoding"
                ) from error
        if record is None:
            return None
        header = _header_of(file, record, options, self._input_name)
        line = block[: record.end]
        if options.header and record.end <= len(block) and line.endswith(b"\n"):
            self._last[options.delimiter] = line, header
        return header


def _header_of(
    file: TextFile, record: _FirstRecord, options: CsvOptions, input_name: str
) -> CsvHeader:
    if options.header:
        _check_names(file, record, options, input_name)
        return CsvHeader(tuple(record.values), record.end)
    names = options.column_names or [f"f{i}" for i in range(len(record.values))]
    is_short = len(record.values) < len(names)
    if len(record.values) > len(names) or (is_short and not options.allow_missing_columns):
        raise JobFileError(
            f"inputs.{input_name}.csv.column_names has {len(names)} entries, but the first row of "
            f"{file.url} has {len(record.values)} fields"
        )
    return CsvHeader(tuple(names), record.begin)


def _check_names(
    file: TextFile, record: _FirstRecord, options: CsvOptions, input_name: str
) -> None:
    if record.lines > 1 and not options.newlines_in_values:
        raise InputError(
            f"{file.url}: a quoted name in the header does not end on its line; close the "
            f"quote, or set inputs.{input_name}.csv.newlines_in_values = true"
        )
    if len(set(record.values)) < len(record.values):
        twice = next(name for name in record.values if record.values.count(name) > 1)
        raise InputError(f"{file.url}: the header names column {twice!r} twice; rename one")


def _first_record(
    file: TextFile, stream: pa.NativeFile, block: bytes, options: CsvOptions
) -> _FirstRecord | None:
    """Return the first record of a file that begins with ``block`` and goes on in the stream."""
    data = block
    while (record := _parse(data, not block, options)) is None and block:
        if len(data) > _MAX_HEADER_BYTES:
            raise InputError(f"{file.url}: the csv header does not end in the first 16 MiB")
        block = stream.read(HEADER_BLOCK_BYTES)
        data += block
    return record


def _parse(data: bytes, ended: bool, options: CsvOptions) -> _FirstRecord | None:
    """Return the first record, after blank lines and comments; None if ``data`` ends before it."""
    begin = len(BOM_UTF8) if data.startswith(BOM_UTF8) else 0
    lines = data[begin:].splitlines(keepends=True)
    if not ended:
        del lines[-1:]  # the line may continue
    rows = range(options.skip_rows, len(lines))
    filled = next((i for i in rows if not is_skipped(lines[i], options)), len(lines))
    consumed: list[bytes] = []
    values = next(records(_decoded(lines[filled:], consumed, options), options), None)
    if values is None or (not ended and len(consumed) == len(lines) - filled):
        return None
    start = begin + sum(map(len, lines[:filled]))
    return _FirstRecord(values, start, start + sum(map(len, consumed)), len(consumed))


def _decoded(lines: list[bytes], consumed: list[bytes], options: CsvOptions) -> Iterator[str]:
    """Yield the lines as text, and append the bytes of each one to ``consumed``."""
    encoding = encoding_of(options)
    errors = "strict" if options.header else "replace"  # then only the number of values matters
    for line in lines:
        consumed.append(line)
        yield encoding.decode(line, errors)
