"""Finds the columns, types and splits of a json input."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources.base import Source, Split
from mrflight.sources.discovery import FoundInput, InputFile
from mrflight.sources.formats import compression_of
from mrflight.sources.guesses import Guess, agree, files_to_look_at, head_bytes, replace_types
from mrflight.sources.json_bad_row import JsonExpectation
from mrflight.sources.json_reader import JsonReader, decode_chunks
from mrflight.sources.lines import read_chunks
from mrflight.sources.splitting import split_bytes_evenly
from mrflight.sources.type_names import parse_types
from mrflight.sources.unreadable import reading


def open_json(found: FoundInput, split_bytes: int) -> Source:
    """The source of a json input: reads the heads of some of its files."""
    files = [file for file in found.files if file.size_bytes > 0]
    declared = parse_types(found.spec.types, found.name)
    schema = _decide_schema(found, files, declared)
    if not schema.names:
        raise InputError(f"{found.key('path')}: no file at {found.root.url} holds a json object")
    reader = JsonReader(
        found.name, schema, frozenset(declared), found.spec.columns is None, found.root
    )
    return Source(
        name=found.name,
        reader=reader,
        files=tuple(file.path for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        splits=tuple(split for file in files for split in _splits(file, split_bytes)),
    )


def _decide_schema(
    found: FoundInput, files: list[InputFile], declared: Mapping[str, pa.DataType]
) -> pa.Schema:
    """The fields of all heads together, and those whose type the job file sets."""
    looked_at = files_to_look_at(files)
    head = head_bytes(len(looked_at))
    typed = pa.schema(list(declared.items()))
    guesses = [_guess(found, file, typed, head) for file in looked_at]
    names = {name: None for guess in guesses for name in guess.schema.names} | dict(declared)
    columns = found.spec.columns or list(names)
    for column in columns:
        if column not in names:
            where = files[0].path if len(files) == 1 else found.root.url
            raise ColumnNotFoundError.among(column, list(names), where)
    read = [Guess(g.path, pa.schema([f for f in g.schema if f.name in columns])) for g in guesses]
    agreed = agree(read, found.name)
    return pa.schema([(c, declared[c] if c in declared else agreed.field(c).type) for c in columns])


def _guess(found: FoundInput, file: InputFile, typed: pa.Schema, head: int) -> Guess:
    """The fields in the first lines of a file, with their types."""
    location = found.root.at(file.path)
    expected = JsonExpectation(found.name, typed, frozenset(typed.names), "infer")
    with reading("json", location):
        chunks = read_chunks(location, 0, 0, None, head)
        try:
            batch = next(decode_chunks(chunks, location, expected), None)
        except pa.ArrowNotImplementedError as error:
            raise JobFileError(f"{found.key('types')}: {error}") from error
    if batch is None:
        return Guess(file.path, pa.schema([]))
    fields = [f if f.name in typed.names else (f.name, _plain(f.type)) for f in batch.schema]
    return Guess(file.path, pa.schema(fields))


def _plain(type: pa.DataType) -> pa.DataType:
    """pyarrow's guess, but a string stays one: json has no timestamps, and a guess drops zones."""
    return replace_types(type, lambda leaf: pa.string() if pa.types.is_timestamp(leaf) else leaf)


def _splits(file: InputFile, split_bytes: int) -> list[Split]:
    if compression_of(file.path):
        return [Split(file.path, 0, file.size_bytes, file.size_bytes)]
    return split_bytes_evenly(file.path, file.size_bytes, split_bytes)
