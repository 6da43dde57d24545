"""Finds the columns, types and splits of a csv input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from mrflight.errors import ColumnNotFoundError, InputError, JobFileError, SchemaMismatchError
from mrflight.sources.base import COMPRESSED, Source, Split
from mrflight.sources.csv_bad_row import CsvExpectation
from mrflight.sources.csv_header import CsvHeader, options_of_file, read_header
from mrflight.sources.csv_reader import CsvReader, decode_chunks
from mrflight.sources.csv_records import read_records
from mrflight.sources.discovery import FoundInput, InputFile
from mrflight.sources.file_version import unchanged
from mrflight.sources.formats import compression_of
from mrflight.sources.lines import read_chunks
from mrflight.sources.read_errors import reading
from mrflight.sources.schema_inference import (
    Guess,
    agree,
    files_to_look_at,
    head_bytes,
    replace_types,
)
from mrflight.sources.splitting import split_bytes_evenly, whole_file
from mrflight.sources.type_names import parse_types, unsupported_type

_Headers = Mapping[InputFile, CsvHeader]


def open_csv(found: FoundInput, split_bytes: int) -> Source:
    """The source of a csv input: reads every header and some of the heads."""
    _check_options(found)
    headers = _read_headers(found)
    columns = _check_columns(found, headers)
    declared = parse_types(found.spec.types, found.name)
    schema = _decide_schema(found, headers, columns, declared)
    reader = CsvReader(found.name, schema, frozenset(declared), found.spec.csv, found.root)
    return Source(
        name=found.name,
        reader=reader,
        files=tuple(file.path for file in headers),
        size_bytes=sum(file.size_bytes for file in headers),
        splits=tuple(s for file in headers for s in _splits(found, file, split_bytes)),
        expansion=COMPRESSED if any(compression_of(file.path) for file in headers) else 1,
    )


def _check_options(found: FoundInput) -> None:
    options = found.spec.csv
    if len(options.delimiter.encode()) != 1 or options.delimiter in '"\r\n':
        raise JobFileError(
            f"{found.key('csv.delimiter')}: {options.delimiter!r} is no delimiter; "
            "use one ASCII character"
        )
    if options.header and options.column_names is not None:
        raise JobFileError(
            f"{found.key('csv.column_names')} is for files without a header; "
            "set header = false, or leave it out"
        )


def _read_headers(found: FoundInput) -> dict[InputFile, CsvHeader]:
    """The headers of the files that are not empty; InputError where all are."""
    headers = {}
    for file in found.files:
        location = found.root.at(file.path)
        # One that was emptied after it was listed would be left out here, and no task look at it.
        with reading("csv", location), unchanged(location, file.version) as location:
            options = options_of_file(found.spec.csv, file.path)
            header = read_header(location, options, found.name)
        if header is not None:
            headers[file] = header
    if not headers:
        raise InputError(
            f"{found.key('path')}: {found.location(found.files[0]).url} is empty, without even a "
            "header"
            + (f", and so are the {len(found.files) - 1} others" if len(found.files) > 1 else "")
        )
    return headers


def _check_columns(found: FoundInput, headers: _Headers) -> Sequence[str]:
    """The columns to read; all files must have them, and no others if all are read."""
    (first, header), *others = headers.items()
    asked = {"columns": found.spec.columns or (), "types": found.spec.types}
    for setting, column in ((setting, name) for setting, names in asked.items() for name in names):
        if column not in header.columns:
            where = f"{found.key(setting)}: {found.location(first).url}"
            raise ColumnNotFoundError.among(column, list(header.columns), where)
    wanted = found.spec.columns or header.columns
    expected = set(wanted)
    for file, other in others:
        have = set(other.columns)
        if missing := expected - have:
            column = next(column for column in wanted if column in missing)
            raise _differ(found, file, first, column)
        if found.spec.columns is None and (new := have - expected):
            column = next(column for column in other.columns if column in new)
            raise _differ(found, first, file, column)
    return wanted


def _differ(
    found: FoundInput, without: InputFile, having: InputFile, column: str
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{found.location(without).url} has no column {column!r}, which "
        f"{found.location(having).url} has; make the headers agree, or read only columns that all "
        f"files have with {found.key('columns')}"
    )


def _decide_schema(
    found: FoundInput,
    headers: _Headers,
    columns: Sequence[str],
    declared: Mapping[str, pa.DataType],
) -> pa.Schema:
    looked_at = files_to_look_at(list(headers))
    head = head_bytes(len(looked_at))
    types = {name: type for name, type in declared.items() if name in columns}
    guesses = []
    for file in looked_at:
        options = options_of_file(found.spec.csv, file.path)
        expected = CsvExpectation(
            found.name, headers[file].columns, columns, types, frozenset(types), options.delimiter
        )
        schema = _guess(found, file, headers[file], expected, head)
        guesses.append(Guess(found.location(file).url, schema))
    return agree(guesses, found.name)


def _guess(
    found: FoundInput, file: InputFile, header: CsvHeader, expected: CsvExpectation, head: int
) -> pa.Schema:
    """The types of the included columns as the first lines of a file have them."""
    location = found.location(file)
    with reading("csv", location):
        if found.spec.csv.newlines_in_values:
            batches = read_records(location, header.size, expected)
        else:
            chunks = read_chunks(location, header.size, 0, None, head)
            batches = decode_chunks(chunks, location, expected)
        try:
            batch = next(batches, None)
        except pa.ArrowNotImplementedError as error:
            raise unsupported_type(expected.types, found.name, error) from error
    if batch is None:
        return pa.schema([(c, expected.types.get(c, pa.null())) for c in expected.include])
    guessed = {c: _plain(batch.column(c)) for c in expected.include if c not in expected.types}
    return pa.schema([(c, guessed.get(c) or expected.types[c]) for c in expected.include])


def _plain(column: pa.Array) -> pa.DataType:
    """The type to guess where pyarrow inferred ``column``'s.

    Timestamps in microseconds, which both whole seconds and most fractions
    fit, and tables as well; text where the bytes are not even UTF-8, so that
    the read names the line.
    """

    def plain(type: pa.DataType) -> pa.DataType:
        if pa.types.is_binary(type):
            return pa.string()
        if pa.types.is_timestamp(type) and _fits_microseconds(column):
            return pa.timestamp("us", type.tz)
        return type

    return replace_types(column.type, plain)


def _fits_microseconds(column: pa.Array) -> bool:
    try:
        column.cast(pa.timestamp("us", column.type.tz))
    except pa.ArrowInvalid:
        return False
    return True


def _splits(found: FoundInput, file: InputFile, split_bytes: int) -> list[Split]:
    if found.spec.csv.newlines_in_values or compression_of(file.path):
        return [whole_file(file.path, file.version)]
    return split_bytes_evenly(file.path, file.version, split_bytes)
