"""Csv files as a source: decide their columns and types, and cut them into splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import ColumnNotFoundError, InputError, SchemaMismatchError
from mrflight.sources.base import Source
from mrflight.sources.csv_bad_row import CsvExpectation
from mrflight.sources.csv_dialect import check_options, encoding_of
from mrflight.sources.csv_header import (
    HEADER_BLOCK_BYTES,
    CsvHeader,
    HeaderReader,
    options_of_file,
)
from mrflight.sources.csv_reader import CsvReader, read_stream
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.lines import read_chunks
from mrflight.sources.read_checks import translate_read_errors, verify_unchanged
from mrflight.sources.schema_inference import (
    InferredSchema,
    head_bytes,
    replace_types,
    sample_files,
    unify_schemas,
)
from mrflight.sources.schema_union import differences
from mrflight.sources.text_file import TextFile
from mrflight.sources.text_source import bad_rows_of, decode_chunks, text_source
from mrflight.sources.type_names import parse_types, unsupported_type
from mrflight.storage.whole_files import WholeFiles

_Headers = Mapping[InputFile, CsvHeader]


def open_csv(found: FoundInput, split_bytes: int) -> Source:
    """Return the source of a csv input. Reads every header, and the first lines of some files."""
    check_options(found)
    headers = _read_headers(found)
    columns = _select_columns(found, headers)
    declared = parse_types(found.spec.types, found.name)
    inferred = _infer_schemas(found, headers, columns, declared)
    schema = unify_schemas(inferred, found.name)
    options = found.spec.csv
    reader = CsvReader(
        found.name, schema, frozenset(declared), options, bad_rows_of(found), root=found.root
    )
    source = text_source(found, headers, reader, split_bytes, encoding_of(options))
    return replace(source, differences=_differences(found, schema, headers, inferred))


def _read_headers(found: FoundInput) -> dict[InputFile, CsvHeader]:
    """Return the headers of the files that are not empty; raise InputError if all are empty."""
    reader, encoding = HeaderReader(found.spec.csv, found.name), encoding_of(found.spec.csv)
    whole = found.root.in_store(WholeFiles(found.root.store))

    def read(file: InputFile) -> CsvHeader | None:
        location = (whole if 0 < file.size_bytes <= HEADER_BLOCK_BYTES else found.root).at(
            file.path
        )
        # A file that was emptied after it was listed would be left out, and no task would notice.
        with (
            translate_read_errors("csv", location),
            verify_unchanged(location, file.version) as location,
        ):
            return reader.read(TextFile(location, encoding))

    each = zip(found.files, found.each(read, found.files), strict=True)
    headers = {file: header for file, header in each if header is not None}
    if not headers:
        raise InputError(
            f"{found.key('path')}: {found.location(found.files[0]).url} is empty, without even a "
            "header"
            + (f", and so are the {len(found.files) - 1} others" if len(found.files) > 1 else "")
        )
    return headers


def _select_columns(found: FoundInput, headers: _Headers) -> Sequence[str]:
    """Return the columns to read.

    All files must have them, and no others if all are read, unless the schema is a union.
    """
    (first, header), *others = headers.items()
    for file, each in headers.items():
        found.check_no_partition_column(each.columns, found.location(file).url)
    if found.spec.schema == "union":
        union = dict.fromkeys(name for each in headers.values() for name in each.columns)
        _check_named(found, list(union), f"no file of {found.place}")
        return found.spec.columns or list(union)
    _check_named(found, header.columns, found.location(first).url)
    selected = found.spec.columns or header.columns
    expected = set(selected)
    for file, other in others:
        names = set(other.columns)
        if (missing := expected - names) and not found.spec.csv.allow_missing_columns:
            column = next(column for column in selected if column in missing)
            raise _header_mismatch(found, file, first, column)
        if found.spec.columns is None and (new := names - expected):
            column = next(column for column in other.columns if column in new)
            raise _header_mismatch(found, first, file, column)
    return selected


def _check_named(found: FoundInput, names: Sequence[str], where: str) -> None:
    """Raise ColumnNotFoundError if the job file names a column that is not in ``names``."""
    named = {"columns": found.spec.columns or (), "types": found.spec.types}
    for setting, column in ((setting, name) for setting, names in named.items() for name in names):
        if column not in names:
            raise ColumnNotFoundError.among(column, list(names), f"{found.key(setting)}: {where}")


def _header_mismatch(
    found: FoundInput, without: InputFile, having: InputFile, column: str
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{found.location(without).url} has no column {column!r}, which "
        f"{found.location(having).url} has; give all files the same header, set "
        f'{found.key("schema")} = "union" to read nulls, or read only columns that all files have '
        f"with {found.key('columns')}"
    )


def _infer_schemas(
    found: FoundInput,
    headers: _Headers,
    columns: Sequence[str],
    declared: Mapping[str, pa.DataType],
) -> list[InferredSchema]:
    """Return what the first lines of some files tell; of all files if the schema is a union."""
    sample = sample_files(list(headers), found.spec.schema)
    head = head_bytes(len(sample))
    types = {name: type for name, type in declared.items() if name in columns}

    def infer(file: InputFile) -> InferredSchema:
        options = options_of_file(found.spec.csv, file.path)
        expected = CsvExpectation(
            found.name, headers[file].columns, columns, types, frozenset(types), options
        )
        schema = _infer_schema(found, file, headers[file], expected, head)
        return InferredSchema(found.location(file).url, schema)

    return list(found.each(infer, sample))


def _differences(
    found: FoundInput, schema: pa.Schema, headers: _Headers, inferred: Sequence[InferredSchema]
) -> tuple[str, ...]:
    """Return how the files of a union differ from its schema."""
    if found.spec.schema == "strict":
        return ()
    having = [
        pa.schema([field for field in file.schema if field.name in header.columns])
        for file, header in zip(inferred, headers.values(), strict=True)
    ]
    return differences(schema, having)


def _infer_schema(
    found: FoundInput, file: InputFile, header: CsvHeader, expected: CsvExpectation, head: int
) -> pa.Schema:
    """Return the included columns with the types that the first lines of a file have."""
    location = found.location(file)
    text = TextFile(location, encoding_of(found.spec.csv))
    with translate_read_errors("csv", location):
        if found.spec.csv.newlines_in_values:
            batches = read_stream(text, header.size, expected, bad_rows_of(found))
        else:
            chunks = read_chunks(text, header.size, 0, None, head)
            batches = decode_chunks(((expected, chunk) for chunk in chunks), bad_rows_of(found))
        try:
            batch = next(batches, None)
        except pa.ArrowNotImplementedError as error:
            raise unsupported_type(expected.types, found.name, error) from error
    if batch is None:
        return pa.schema([(c, expected.types.get(c, pa.null())) for c in expected.include])
    inferred = {
        c: inferred_type(batch.column(c)) for c in expected.include if c not in expected.types
    }
    return pa.schema([(c, inferred.get(c) or expected.types[c]) for c in expected.include])


def inferred_type(column: pa.Array) -> pa.DataType:
    """Return the type to read a column with, for the type that pyarrow inferred.

    Timestamps become microseconds if their values fit: whole seconds and most fractions do, and
    tables store microseconds. Bytes that are not UTF-8 count as text, so that the read reports
    their line.
    """

    def of_leaf(type: pa.DataType) -> pa.DataType:
        if pa.types.is_binary(type):
            return pa.string()
        if pa.types.is_timestamp(type) and _fits_microseconds(column):
            return pa.timestamp("us", type.tz)
        return type

    return replace_types(column.type, of_leaf)


def _fits_microseconds(column: pa.Array) -> bool:
    try:
        column.cast(pa.timestamp("us", column.type.tz))
    except pa.ArrowInvalid:
        return False
    return True
