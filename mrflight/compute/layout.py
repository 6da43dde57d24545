"""The layout that rows arrive in.

Two maps, or two clients, may hold the same column in other layouts: strings
as large strings, views or a dictionary. Whoever reads gets one, so that the
blocks of a partition always go together: the values themselves, with 32-bit
offsets (a batch of more than 2 GiB in one column is cut before). What some
columns are while they travel is another thing: `mrflight.shuffle.wire.column_encoding`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute.types import plain_type


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that batches of ``schema`` travel with; metadata stays behind."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def to_canonical(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` in its plain layout ``schema``; columns that have it already are not copied."""
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
        columns.append(column.dictionary_decode() if is_encoded else column)
        fields.append(field.with_type(columns[-1].type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def null_masked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The values alone, column by column, without what memory happens to hold behind nulls.

    Equal rows in the plain layout are the same bytes then, but for structs that are within lists.
    A struct's columns come after one that says which rows it is in.
    """
    rows = pa.array(np.arange(batch.num_rows))
    columns = [
        each.take(rows) if _may_have_more(each) else each
        for column in batch.columns
        for each in _members(column)
    ]
    return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])


def _may_have_more(column: pa.Array) -> bool:
    """Behind nulls, or in bits that are no row's."""
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
    """A column in its plain layout ``kind``; not copied where it has that already."""
    if column.type == kind:
        return column
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    elif types.is_run_end_encoded(column.type):
        import pyarrow.compute as pc

        column = pc.run_end_decode(column)
    return column.cast(kind)
