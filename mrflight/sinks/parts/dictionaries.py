"""Tables of batches that have some columns as dictionaries, each of its own values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from mrflight.compute.arrays import to_arrow, to_numpy


def table_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """One table of batches that differ in nothing but which columns are dictionaries.

    A column that is one in any of them is one in all.
    """
    first = batches[0].schema
    if any(batch.schema != first for batch in batches):
        schemas = [batch.schema for batch in batches]
        first = pa.schema(
            [_encoded([schema.field(i) for schema in schemas]) for i in range(len(first))]
        )
    tables = [with_types(pa.Table.from_batches([batch]), first) for batch in batches]
    return pa.concat_tables(tables)


def unified(table: pa.Table) -> pa.Table:
    """The table with one dictionary for each such column, of no values but those in its rows.

    parquet-cpp writes one dictionary in a row group, and may take values that are in none of the
    rows for its bounds.
    """
    if not any(types.is_dictionary(field.type) for field in table.schema):
        return table
    columns = [
        _used(column) if types.is_dictionary(column.type) else column
        for column in table.unify_dictionaries().columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema with the types of the values of dictionaries."""
    return pa.schema(
        [
            field.with_type(field.type.value_type) if types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def with_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with those columns as dictionaries that are in ``schema``, and no others."""
    if table.schema == schema:
        return table
    columns = [
        _with_type(column, field.type) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _encoded(fields: Sequence[pa.Field]) -> pa.Field:
    """Of the same column in several batches: the one where it is a dictionary, if there is."""
    return next((field for field in fields if types.is_dictionary(field.type)), fields[0])


def _with_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if types.is_dictionary(kind):
        return column.dictionary_encode()
    return column.cast(kind)


def _used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of one dictionary without the values that no row has."""
    if column.num_chunks == 0:
        return column
    dictionary = column.chunk(0).dictionary
    is_used = np.zeros(len(dictionary), np.bool_)
    for chunk in column.chunks:
        is_used[to_numpy(chunk.indices.drop_null())] = True
    if is_used.all():
        return column
    used = to_arrow(np.flatnonzero(is_used).astype(np.int32))
    chunks = [
        pa.DictionaryArray.from_arrays(
            pc.index_in(chunk.indices, value_set=used), dictionary.take(used)
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks)
