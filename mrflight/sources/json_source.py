"""Finds the columns, types and splits of a json input."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from mrflight.errors import BadRowError, ColumnNotFoundError, InputError
from mrflight.sources.base import COMPRESSED, Source, Split
from mrflight.sources.discovery import FoundInput, InputFile
from mrflight.sources.formats import compression_of
from mrflight.sources.json_bad_row import JsonExpectation
from mrflight.sources.json_reader import JsonReader, decode_chunks
from mrflight.sources.lines import Chunk, read_chunks
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


def open_json(found: FoundInput, split_bytes: int) -> Source:
    """The source of a json input: reads the heads of some of its files."""
    files = [file for file in found.files if file.size_bytes > 0]
    declared = parse_types(found.spec.types, found.name)
    schema = _decide_schema(found, files, declared) if files else pa.schema([])
    if not schema.names:
        raise InputError(
            f"{found.key('path')}: {found.root.url} holds no json object, only empty files"
        )
    reader = JsonReader(
        found.name, schema, frozenset(declared), found.spec.columns is None, found.root
    )
    return Source(
        name=found.name,
        reader=reader,
        files=tuple(file.path for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        splits=tuple(split for file in files for split in _splits(file, split_bytes)),
        expansion=COMPRESSED if any(compression_of(file.path) for file in files) else 1,
    )


def _decide_schema(
    found: FoundInput, files: list[InputFile], declared: Mapping[str, pa.DataType]
) -> pa.Schema:
    """The fields of all heads together, and those whose type the job file sets."""
    looked_at = files_to_look_at(files)
    head = head_bytes(len(looked_at))
    wanted = found.spec.columns
    typed = pa.schema([(c, t) for c, t in declared.items() if wanted is None or c in wanted])
    guesses = [_guess(found, file, typed, head) for file in looked_at]
    names = {name: None for guess in guesses for name in guess.schema.names} | dict(declared)
    columns = wanted or list(names)
    for column in columns:
        if column not in names:
            where = found.location(files[0]).url if len(files) == 1 else found.root.url
            where = f"{found.key('columns')}: {where}"
            raise ColumnNotFoundError.among(column, list(names), where)
    read = [Guess(g.url, pa.schema([f for f in g.schema if f.name in columns])) for g in guesses]
    agreed = agree(read, found.name)
    return pa.schema([(c, declared[c] if c in declared else agreed.field(c).type) for c in columns])


def _guess(found: FoundInput, file: InputFile, typed: pa.Schema, head: int) -> Guess:
    """The fields in the first lines of a file, in order of appearance, with their types."""
    location = found.location(file)
    expected = JsonExpectation(found.name, typed, frozenset(typed.names), "infer")
    with reading("json", location):
        chunk = next(read_chunks(location, 0, 0, None, head), None)
        if chunk is None:
            return Guess(location.url, pa.schema([]))
        try:
            (batch,) = decode_chunks(iter([chunk]), location, expected)
        except BadRowError:
            if found.spec.columns is None:
                raise
            # The trouble may be in a column that nobody asked for.
            narrowed = _with_fields(chunk, found.spec.columns)
            (batch,) = decode_chunks(iter([narrowed]), location, expected)
        except pa.ArrowNotImplementedError as error:
            types = {field.name: field.type for field in typed}
            raise unsupported_type(types, found.name, error) from error
    guessed = [f if f.name in typed.names else (f.name, _plain(f.type)) for f in batch.schema]
    schema = pa.schema(guessed)
    # pyarrow puts fields of a given type in front.
    order = [name for name in _first_names(chunk) if name in schema.names]
    rest = [name for name in schema.names if name not in order]
    return Guess(location.url, pa.schema([schema.field(name) for name in (*order, *rest)]))


def _first_names(chunk: Chunk) -> list[str]:
    """The fields of the first object."""
    first = next((line for line in bytes(chunk).splitlines() if line.strip()), b"{}")
    return list(json.loads(first.decode("utf-8-sig")))


def _with_fields(chunk: Chunk, names: list[str]) -> Chunk:
    """The same lines with only these fields; what is no object stays as it is."""
    return Chunk.of(
        b"".join(_line_with_fields(line, names) for line in bytes(chunk).splitlines(True))
    )


def _line_with_fields(line: bytes, names: list[str]) -> bytes:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if not isinstance(value, dict):
        return line
    return json.dumps({name: value[name] for name in names if name in value}).encode() + b"\n"


def _plain(type: pa.DataType) -> pa.DataType:
    """What pyarrow guesses, but strings stay strings: its guess of a timestamp drops the zone."""
    return replace_types(type, lambda leaf: pa.string() if pa.types.is_timestamp(leaf) else leaf)


def _splits(file: InputFile, split_bytes: int) -> list[Split]:
    if compression_of(file.path):
        return [whole_file(file.path, file.version)]
    return split_bytes_evenly(file.path, file.version, split_bytes)
