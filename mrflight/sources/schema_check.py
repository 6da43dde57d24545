"""Checks of the schemas of an input's files, and the cast of their batches to one schema.

Files with types of their own (parquet, arrow, Delta) must have compatible columns. Columns of a
type that cannot be shuffled are refused, whatever the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import is_low_cardinality
from mrflight.compute.types import canonical_type
from mrflight.errors import ColumnNotFoundError, InputError, SchemaMismatchError
from mrflight.sources.common_type import common_type
from mrflight.sources.found_input import FoundInput


def common_schema(found: FoundInput, schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return the columns to read, with the types of the first file.

    ``schemas`` has the URL and the schema of each file. Files may differ in the order of columns,
    in nullability, in metadata, and in the layout of strings and binaries. If a file has only nulls
    (the null type), the type in another file counts; if only some files have dictionaries, or their
    dictionaries differ, the type of the values. Raises SchemaMismatchError for other differences.
    """
    (first, schema), *others = schemas
    selected = select_columns(found, schema, first)
    common = {name: (first, schema.field(name).type) for name in selected}
    for url, other in others:
        _check_same_names(found, (first, schema), (url, other), selected)
        for name, (type_url, type) in common.items():
            other_type = other.field(name).type
            same = same_values_type(type, other_type)
            if same is None:
                can_widen = common_type(canonical_type(type), canonical_type(other_type))
                advice = f'set {found.key("schema")} = "union"' if can_widen else "rewrite one"
                raise SchemaMismatchError(
                    f"{url}: column {name!r} is {other_type}, but {type} in {type_url}; {advice}, "
                    f"or leave the column out of {found.key('columns')}"
                )
            common[name] = (url if types.is_null(type) else type_url, same)
    return pa.schema([(name, type) for name, (_, type) in common.items()])


def select_columns(found: FoundInput, schema: pa.Schema, where: str) -> Sequence[str]:
    """Return the columns that the job selects, by default all.

    Raises InputError if two columns have the same name, also if one of them is in the names of the
    folders, and ColumnNotFoundError for a missing one.
    """
    names: list[str] = schema.names
    check_names(found, schema, where)
    for name in found.spec.columns or ():
        if name not in names:
            raise ColumnNotFoundError.among(name, names, f"{found.key('columns')}: {where}")
    return found.spec.columns or names


def check_names(found: FoundInput, schema: pa.Schema, where: str) -> None:
    """Raise InputError for two columns of one name, also if it is that of folders."""
    names: list[str] = schema.names
    found.check_no_partition_column(names, where)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: two columns are named {twice!r}; rename one")


def _check_same_names(
    found: FoundInput,
    first: tuple[str, pa.Schema],
    other: tuple[str, pa.Schema],
    selected: Sequence[str],
) -> None:
    """Raise SchemaMismatchError for a column that only one of two files has; both are by URL."""
    (first_url, first_schema), (url, schema) = first, other
    select_columns(found, schema, url)
    names, first_names = set(schema.names), set(first_schema.names)
    missing = [(url, name, first_url) for name in selected if name not in names]
    if found.spec.columns is None:
        missing += [(first_url, name, url) for name in schema.names if name not in first_names]
    for without, name, having in missing:
        raise SchemaMismatchError(
            f"{without} has no column {name!r}, which {having} has; set {found.key('schema')} = "
            f'"union" to read nulls, or read only columns that all files have with '
            f"{found.key('columns')}"
        )


def same_values_type(type: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type for two that have the same values in some layout, or no values; else None."""
    if type == other or types.is_null(type) or types.is_null(other):
        return other if types.is_null(type) else type
    return _common_layout(type, other) if have_same_values(type, other) else None


def _common_layout(type: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that holds the values of both types.

    The index of a dictionary may be too narrow for another file's values, and nested fields may
    not be nullable although another file has nulls.
    """
    is_narrow = types.is_dictionary(type) or types.is_dictionary(other) or types.is_nested(type)
    return canonical_type(type) if type != other and is_narrow else type


def have_same_values(a: pa.DataType, b: pa.DataType) -> bool:
    """Return whether two types hold the same values, in whatever layout."""
    return bool(canonical_type(a) == canonical_type(b))


def with_constants(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, object]
) -> pa.RecordBatch:
    """Return the batch with the columns that its file lacks: their constants, or else nulls."""
    stored = set(batch.schema.names)
    for field in schema:
        if field.name not in stored:
            value = constants.get(field.name)
            column = (
                pa.nulls(batch.num_rows, field.type)
                if value is None
                else pa.repeat(pa.scalar(value, field.type), batch.num_rows)
            )
            batch = batch.append_column(field, column)
    return batch


Cast = Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch]
"""`cast_batch` or `cast_encoded_batch`."""


class LossyCastError(pa.ArrowInvalid):
    """A column has a value that is not of the type it is to have."""

    def __init__(self, column: str, type: pa.DataType, reason: str) -> None:
        super().__init__(f"{column} to {type}: {reason}")
        self.column, self.type, self.reason = column, type, reason


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``schema``, by name, in its order and types.

    Raises LossyCastError if a value would be lost.
    """
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise LossyCastError(field.name, field.type, str(error)) from error
    # An equal list type may have another name for its items, so the batch gets this schema.
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_encoded_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return what `cast_batch` returns, but keep the dictionaries of few distinct strings.

    The type of such a column is then that of the dictionary.
    """
    fields = []
    for field in schema:
        column = batch.column(field.name)
        is_kept = is_low_cardinality(column) and field.type == column.dictionary.type
        fields.append(field.with_type(column.type) if is_kept else field)
    return cast_batch(batch, pa.schema(fields))


def check_column_types(schema: pa.Schema, key: str) -> None:
    """Raise InputError for a column with a type whose rows Arrow cannot take.

    ``key`` is the key path of the input. pyarrow 26 makes invalid arrays of run-end-encoded values
    within other types, and of large lists as it casts them if nulls without a type are within their
    items. It crashes the process as it takes the members of a union within a struct, and cannot
    take the views of an extension type, or of a dictionary within another type.
    """
    for field in schema:
        if unsupported := _find_unsupported(field.type):
            raise InputError(
                f"{key}: column {field.name!r} is {field.type}, and {unsupported} cannot be "
                f"shuffled; leave the column out with {key}.columns, or write the files with "
                "another type"
            )


def _find_unsupported(type: pa.DataType) -> str | None:
    for each in (type, *types_within(type)):
        if isinstance(each, pa.BaseExtensionType) and _is_view(each.storage_type):
            return "extension types over views"
        if types.is_large_list(each) and any(map(types.is_null, types_within(each.value_type))):
            return "large lists with the type null within their items"
    for inner in types_within(type):
        if types.is_union(inner):
            return "unions within other types"
        if types.is_run_end_encoded(inner):
            return "run-end-encoded values within other types"
        if types.is_dictionary(inner) and _is_view(inner.value_type):
            return "dictionaries of views within other types"
    return None


def _is_view(type: pa.DataType) -> bool:
    return bool(types.is_string_view(type) or types.is_binary_view(type))


def types_within(type: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types that a type is made of, without itself."""
    if isinstance(type, pa.BaseExtensionType):
        children = [type.storage_type]
    elif types.is_map(type):
        children = [type.key_type, type.item_type]
    elif types.is_dictionary(type) or types.is_run_end_encoded(type):
        children = [type.value_type]
    else:
        children = [type.field(number).type for number in range(type.num_fields)]
    for child in children:
        yield child
        yield from types_within(child)
