"""One schema for files of different schemas: ``schema = "union"`` of an input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute.types import canonical_type
from mrflight.errors import ColumnNotFoundError, SchemaMismatchError
from mrflight.sources.common_type import common_type
from mrflight.sources.found_input import FoundInput
from mrflight.sources.schema_check import (
    LossyCastError,
    check_names,
    common_schema,
    same_values_type,
)
from mrflight.units import format_count


class AgreedSchema(msgspec.Struct, frozen=True):
    """The schema of an input's files, and how those differ from it."""

    schema: pa.Schema
    origins: Mapping[str, str] = {}
    """The URL of a file with the type of a column, if the files have several types for it."""
    differences: tuple[str, ...] = ()
    """What `differences` returns."""


def agree_on_schema(found: FoundInput, schemas: Sequence[tuple[str, pa.Schema]]) -> AgreedSchema:
    """Return the columns to read of files with types of their own, by URL and schema.

    Raises ColumnNotFoundError, and SchemaMismatchError for files that cannot be read together.
    """
    if found.spec.schema == "strict":
        return AgreedSchema(common_schema(found, schemas))
    for url, schema in schemas:
        check_names(found, schema, url)
    names = dict.fromkeys(name for _, schema in schemas for name in schema.names)
    columns: dict[str, tuple[str, pa.DataType]] = {}
    origins: dict[str, str] = {}
    for name in select_of_union(found, list(names)):
        for url, schema in schemas:
            if (number := schema.get_field_index(name)) < 0:
                continue
            kind = schema.field(number).type
            before = columns.get(name, (url, kind))
            columns[name] = _widened(found, name, before, (url, kind))
            if not before[1] == columns[name][1] == kind:
                origins[name] = columns[name][0]
    union = pa.schema([(name, kind) for name, (_, kind) in columns.items()])
    return AgreedSchema(union, origins, differences(union, [schema for _, schema in schemas]))


@contextmanager
def explain_lost_values(url: str, origins: Mapping[str, str]) -> Iterator[None]:
    """Raise SchemaMismatchError for a value of a file that a column's type cannot hold."""
    try:
        yield
    except LossyCastError as error:
        if error.column not in origins:
            raise
        raise SchemaMismatchError(
            f"{url}: column {error.column!r} has a value that {error.type} cannot hold, its type "
            f"because of {origins[error.column]}: {error.reason}; rewrite one of the files, or "
            "leave the column out"
        ) from error


def _widened(
    found: FoundInput,
    name: str,
    before: tuple[str, pa.DataType],
    added: tuple[str, pa.DataType],
) -> tuple[str, pa.DataType]:
    """Return the type for the values of a column so far and of one more file, and whose it is."""
    (url, type), (other_url, other) = before, added
    if (same := same_values_type(type, other)) is not None:
        return (other_url if types.is_null(type) else url), same
    wide = common_type(canonical_type(type), canonical_type(other))
    if wide is None:
        raise SchemaMismatchError(
            f"{other_url}: column {name!r} is {other}, but {type} in {url}, and no type has the "
            f"values of both; rewrite one of the files, or leave the column out of "
            f"{found.key('columns')}"
        )
    return (url if wide == type else other_url), wide


def select_of_union(found: FoundInput, names: Sequence[str]) -> Sequence[str]:
    """Return the columns that the job selects, by default all; ColumnNotFoundError if none is."""
    for name in found.spec.columns or ():
        if name not in names:
            where = f"{found.key('columns')}: no file of {found.place}"
            raise ColumnNotFoundError.among(name, list(names), where)
    return found.spec.columns or names


def differences(schema: pa.Schema, files: Sequence[pa.Schema]) -> tuple[str, ...]:
    """Return which columns some files lack, and which are wider than in others, for the plan."""
    return (*_lacking(schema, files), *widened(schema, files))


def _lacking(schema: pa.Schema, files: Sequence[pa.Schema]) -> Iterator[str]:
    having = Counter(name for file in files for name in file.names)
    for name in schema.names:
        if lacking := len(files) - having[name]:
            yield f"{name} is null in {format_count(lacking, 'file')}"


def widened(schema: pa.Schema, files: Sequence[pa.Schema]) -> Iterator[str]:
    """Yield the columns that have another type than in some file, with these types."""
    kinds: dict[str, dict[str, None]] = {name: {} for name in schema.names}
    for file in files:
        for name, kind in zip(file.names, file.types, strict=True):
            if name in kinds and not types.is_null(kind) and kind != schema.field(name).type:
                kinds[name][str(kind)] = None
    for name, others in kinds.items():
        if others:
            yield f"{name} is {schema.field(name).type} instead of {' and '.join(others)}"
