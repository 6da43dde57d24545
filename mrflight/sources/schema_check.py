"""Whether typed files (parquet, arrow) have the same columns, and reading them as if they had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import is_low_cardinality
from mrflight.compute.types import canonical_type
from mrflight.errors import ColumnNotFoundError, InputError, SchemaMismatchError
from mrflight.sources.discovery import FoundInput


def agreed_schema(found: FoundInput, schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns to read, as the first file types them; ``schemas`` go with their files' URLs.

    Files may differ in the order of columns, in what may be null, in metadata,
    and in the layout of strings and binaries. Where one has only nulls (the
    null type) another's type counts; where only some have dictionaries, or
    others, the type of their values. Raises SchemaMismatchError for other differences.
    """
    (first, schema), *others = schemas
    wanted = select_columns(found, schema, first)
    decided = {name: (first, schema.field(name).type) for name in wanted}
    for url, other in others:
        _check_names(found, first, schema, url, other, wanted)
        for name, (before, type) in decided.items():
            now = other.field(name).type
            if types.is_null(type):
                decided[name] = (url, now)
            elif same_values(type, now):
                decided[name] = (before, _one_layout(type, now))
            elif not types.is_null(now):
                raise SchemaMismatchError(
                    f"{url}: column {name!r} is {now}, but {type} in {before}; rewrite one of the "
                    f"files, or leave the column out of {found.key('columns')}"
                )
    return pa.schema([(name, type) for name, (_, type) in decided.items()])


def select_columns(found: FoundInput, schema: pa.Schema, where: str) -> Sequence[str]:
    """The columns that the job asks for, else all; InputError, ColumnNotFoundError."""
    names: list[str] = schema.names
    known = set(names)
    if len(known) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: two columns are named {twice!r}; rename one")
    for name in found.spec.columns or ():
        if name not in known:
            raise ColumnNotFoundError.among(name, names, f"{found.key('columns')}: {where}")
    return found.spec.columns or names


def _check_names(
    found: FoundInput,
    first: str,
    schema: pa.Schema,
    url: str,
    other: pa.Schema,
    wanted: Sequence[str],
) -> None:
    have, known = set(other.names), set(schema.names)
    missing = [(url, name, first) for name in wanted if name not in have]
    if found.spec.columns is None:
        missing += [(first, name, url) for name in other.names if name not in known]
    for without, name, having in missing:
        raise SchemaMismatchError(
            f"{without} has no column {name!r}, which {having} has; read only columns that all "
            f"files have with {found.key('columns')}"
        )
    select_columns(found, other, url)


def _one_layout(type: pa.DataType, now: pa.DataType) -> pa.DataType:
    """One that holds the values of both.

    A dictionary may have too narrow an index for another file's values, and fields within may not
    be null where another file has nulls.
    """
    is_narrow = types.is_dictionary(type) or types.is_dictionary(now) or types.is_nested(type)
    return canonical_type(type) if type != now and is_narrow else type


def same_values(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether two types hold the same values, in whatever layout."""
    return bool(canonical_type(a) == canonical_type(b))


Conform = Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch]
"""`conform` or `conform_encoded`."""


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``schema``, by name, in its order and types; no cast loses a value."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    # An equal list type may have another name for its items, so the batch gets this schema.
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform_encoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``schema`` as `conform` does, but dictionaries of few strings as such.

    The type of such a column is then that of the dictionary.
    """
    fields = []
    for field in schema:
        column = batch.column(field.name)
        is_kept = is_low_cardinality(column) and field.type == column.dictionary.type
        fields.append(field.with_type(column.type) if is_kept else field)
    return conform(batch, pa.schema(fields))
