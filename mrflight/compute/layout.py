"""Converts rows to the canonical layout: plain values with 32-bit offsets.

Two maps, or two clients, may hold the same column in different layouts: strings as large strings,
as views or as a dictionary. Readers get the canonical layout, so that the blocks of a partition
always fit together. A batch with more than 2 GiB in one column is split before it is converted.
`mrflight.shuffle.wire.column_encoding` describes how some columns are encoded on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc
from mrflight.compute.types import canonical_type


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in the canonical layout, without metadata."""
    return pa.schema([pa.field(field.name, canonical_type(field.type)) for field in schema])


def to_canonical(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` in its canonical layout ``schema``. Columns in it are not copied."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        canonical_column(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def decode_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the values of each dictionary column instead of the dictionary."""
    kinds = [field.type for field in batch.schema]
    if not any(map(types.is_dictionary, kinds)):
        return batch
    columns, fields = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        is_encoded = types.is_dictionary(column.type)
        columns.append(_decode_dictionary(column) if is_encoded else column)
        fields.append(field.with_type(columns[-1].type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def with_null_fields(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with null in the fields of each struct that is null, also within lists.

    Arrow has any values there, and DataFusion (55) takes these for the values of the fields.
    """
    if not any(map(types.is_nested, batch.schema.types)):
        return batch
    return pa.RecordBatch.from_arrays(list(map(_null_fields, batch.columns)), schema=batch.schema)


def _null_fields(column: pa.Array) -> pa.Array:
    kind = column.type
    if types.is_struct(kind) and kind.num_fields:
        members = [_null_fields(member) for member in column.flatten()]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=column.is_null())
    if types.is_list(kind) and types.is_nested(kind.value_type):
        return pa.Array.from_buffers(
            kind,
            len(column),
            column.buffers()[:2],
            offset=column.offset,
            children=[_null_fields(column.values)],
        )
    return column


def null_masked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns without the bytes that memory happens to hold behind nulls.

    Equal rows in the canonical layout then have equal bytes, except for structs within lists. A
    struct becomes its columns, after a column that says in which rows it is not null.
    """
    rows = pa.array(np.arange(batch.num_rows))
    columns = [
        each.take(rows) if _may_have_more(each) else each
        for column in batch.columns
        for each in _members(column)
    ]
    return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])


def _may_have_more(column: pa.Array) -> bool:
    """Return whether a column may hold bytes behind nulls, or bits beyond its last row."""
    kind = column.type
    return bool(column.null_count or types.is_boolean(kind) or types.is_nested(kind))


def _members(column: pa.Array) -> Iterator[pa.Array]:
    if not types.is_struct(column.type):
        yield column
        return
    yield column.is_valid()
    for member in column.flatten():
        yield from _members(member)


def canonical_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in its canonical layout ``kind``; it is not copied if it has that already."""
    if column.type == kind:
        return column
    if isinstance(column, pa.DictionaryArray):
        column = _decode_dictionary(column)
    elif types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column).cast(kind)
        # Arrow (26) leaves behind the nulls whatever was in memory there.
        return column.take(pa.array(np.arange(len(column)))) if column.null_count else column
    return column.cast(kind)


def _decode_dictionary(column: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary column.

    Arrow cannot take views (pyarrow 26), so a dictionary of views is converted first.
    """
    kind = column.type.value_type
    if types.is_string_view(kind) or types.is_binary_view(kind):
        values = column.dictionary.cast(canonical_type(kind))
        column = pa.DictionaryArray.from_arrays(column.indices, values)
    return column.dictionary_decode()
