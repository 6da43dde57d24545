"""Newline-delimited json files as a source: decide their columns and types, and read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.text_options import JsonOptions
from mrflight.errors import BadRowError, ColumnNotFoundError, InputError
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import FileReader, Source, Split
from mrflight.sources.chunk import Chunk
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.json_bad_row import JsonExpectation
from mrflight.sources.json_decoder import OtherFields, encoding_of
from mrflight.sources.lines import read_chunks
from mrflight.sources.read_checks import translate_read_errors
from mrflight.sources.schema_inference import (
    InferredSchema,
    head_bytes,
    replace_types,
    sample_files,
    unify_schemas,
)
from mrflight.sources.schema_union import widened
from mrflight.sources.text_encoding import BYTE_ORDER_MARK, TextEncoding, check_encoding
from mrflight.sources.text_file import TextFile
from mrflight.sources.text_source import (
    RowsOfFile,
    bad_rows_of,
    decode_chunks,
    read_lines,
    text_source,
)
from mrflight.sources.timestamp_formats import check_timestamp_formats
from mrflight.sources.type_names import parse_types, unsupported_type


@dataclass(frozen=True)
class JsonReader(FileReader):
    """Reads json objects, one per line, as rows of ``schema``; missing fields are null."""

    input_name: str
    schema: pa.Schema
    declared: frozenset[str]
    """The columns whose type the job file sets."""
    reads_all: bool
    """True if all fields are read, so that a field that the schema lacks is an error."""
    options: JsonOptions
    bad_rows: BadRowLog | None = None
    """Takes the rows that cannot be read; None if these are errors."""

    def with_bad_rows(self, log: BadRowLog) -> JsonReader:
        return self if self.bad_rows is None else with_fields(self, bad_rows=log)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        others: OtherFields = "error" if self.reads_all else "ignore"
        rows = RowsOfFile(
            0, JsonExpectation(self.input_name, self.schema, self.declared, others, self.options)
        )
        encoding = encoding_of(self.options)
        return read_lines(self.root, split, "json", encoding, lambda _: rows, self.bad_rows)


def open_json(found: FoundInput, split_bytes: int) -> Source:
    """Return the source of a json input. Reads the first lines of some of its files."""
    options = found.spec.json
    check_encoding(options.encoding, found.key("json.encoding"))
    check_timestamp_formats(options.timestamp_formats, found.key("json.timestamp_formats"))
    files = [file for file in found.files if file.size_bytes > 0]
    declared = parse_types(found.spec.types, found.name)
    schema, noted = _decide_schema(found, files, declared) if files else (pa.schema([]), ())
    if not schema.names:
        raise InputError(f"{found.key('path')}: {found.place} has no json object, only empty files")
    reads_all = found.spec.columns is None
    reader = JsonReader(
        found.name,
        schema,
        frozenset(declared),
        reads_all,
        options,
        bad_rows_of(found),
        root=found.root,
    )
    source = text_source(found, files, reader, split_bytes, encoding_of(options))
    return replace(source, differences=noted)


def _decide_schema(
    found: FoundInput, files: list[InputFile], declared: Mapping[str, pa.DataType]
) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the fields in the first lines of all sampled files, and those in ``declared``.

    If the schema is a union, also return how the files differ from it.
    """
    sample = sample_files(files, found.spec.schema)
    head = head_bytes(len(sample))
    selected = found.spec.columns
    typed = pa.schema([(c, t) for c, t in declared.items() if selected is None or c in selected])
    infer = partial(_infer_schema, found, typed=typed, head=head)
    inferred = list(found.each(infer, sample))
    for file in inferred:
        found.check_no_partition_column(file.schema.names, file.url)
    names = {name: None for file in inferred for name in file.schema.names} | dict(declared)
    columns = selected or list(names)
    for column in columns:
        if column not in names:
            where = found.location(files[0]).url if len(files) == 1 else found.place
            where = f"{found.key('columns')}: {where}"
            raise ColumnNotFoundError.among(column, list(names), where)
    read = [
        InferredSchema(file.url, pa.schema([f for f in file.schema if f.name in columns]))
        for file in inferred
    ]
    unified = unify_schemas(read, found.name)
    schema = pa.schema(
        [(c, declared[c] if c in declared else unified.field(c).type) for c in columns]
    )
    # Any object may lack a field, so that a file has no row with it is no difference.
    is_union = found.spec.schema == "union"
    return schema, tuple(widened(schema, [file.schema for file in read])) if is_union else ()


def _infer_schema(
    found: FoundInput, file: InputFile, typed: pa.Schema, head: int
) -> InferredSchema:
    """Return the fields in the first lines of a file, in order of appearance."""
    location, options = found.location(file), found.spec.json
    expected = JsonExpectation(found.name, typed, frozenset(typed.names), "infer", options)
    text = TextFile(location, encoding_of(options))
    with translate_read_errors("json", location):
        chunk = next(read_chunks(text, 0, 0, None, head), None)
        if chunk is None:
            return InferredSchema(location.url, pa.schema([]))
        try:
            (batch,) = decode_chunks([(expected, chunk)], bad_rows_of(found))
        except BadRowError:
            if found.spec.columns is None:
                raise
            # The bad value may be in a column that is not selected.
            selected = _select_fields(chunk, found.spec.columns, text.encoding)
            (batch,) = decode_chunks([(expected, selected)], bad_rows_of(found))
        except pa.ArrowNotImplementedError as error:
            types = {field.name: field.type for field in typed}
            raise unsupported_type(types, found.name, error) from error
    fields = [f if f.name in typed.names else (f.name, inferred_type(f.type)) for f in batch.schema]
    schema = pa.schema(fields)
    # pyarrow puts the fields of the explicit schema first.
    order = [name for name in first_names(chunk, text.encoding) if name in schema.names]
    rest = [name for name in schema.names if name not in order]
    return InferredSchema(location.url, pa.schema([schema.field(n) for n in (*order, *rest)]))


def first_names(chunk: Chunk, encoding: TextEncoding) -> list[str]:
    """Return the names of the first object's fields."""
    decode = json.JSONDecoder().raw_decode
    for line in chunk.lines():
        try:
            value, _ = decode(encoding.decode(line).removeprefix(BYTE_ORDER_MARK).strip())
        except ValueError:  # empty, or bad and skipped
            continue
        if isinstance(value, dict):
            return list(value)
    return []


def _select_fields(chunk: Chunk, names: list[str], encoding: TextEncoding) -> Chunk:
    """Return the lines with only these fields; a line that is no object stays as it is."""
    lines = bytes(chunk).splitlines(True)
    return chunk.of_lines(b"".join(_line_with_fields(line, names, encoding) for line in lines))


def _line_with_fields(line: bytes, names: list[str], encoding: TextEncoding) -> bytes:
    try:
        value = json.loads(encoding.decode(line).removeprefix(BYTE_ORDER_MARK))
    except ValueError:
        return line
    if not isinstance(value, dict):
        return line
    return json.dumps({name: value[name] for name in names if name in value}).encode() + b"\n"


def inferred_type(type: pa.DataType) -> pa.DataType:
    """Return the type that pyarrow inferred, but strings for timestamps.

    pyarrow drops the time zone of a timestamp that it infers.
    """
    return replace_types(type, lambda leaf: pa.string() if pa.types.is_timestamp(leaf) else leaf)
