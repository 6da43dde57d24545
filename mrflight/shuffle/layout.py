"""The layout that rows arrive in.

Two maps, or two clients, may hold the same column in other layouts: strings
as large strings, views or a dictionary. Whoever reads gets one, so that the
blocks of a partition always go together: the values themselves, with 32-bit
offsets (a batch of more than 2 GiB in one column is cut before). What some
columns are while they travel is another thing: `mrflight.shuffle.narrow`.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from mrflight.plain_types import plain_type


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that batches of ``schema`` travel with; metadata stays behind."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` in its plain layout ``schema``; columns that have it already are not copied."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        plain_column(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in its plain layout ``kind``; not copied where it has that already."""
    if column.type == kind:
        return column
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    elif types.is_run_end_encoded(column.type):
        import pyarrow.compute as pc

        column = pc.run_end_decode(column)
    return column.cast(kind)
