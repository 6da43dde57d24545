"""Tables of batches whose columns may be dictionaries, each batch with its own dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute import arrow_compute as pc
from mrflight.compute.arrays import to_arrow, to_numpy

_ROWS_AT_ONCE = 1 << 14


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return one table of batches that differ only in which columns are dictionaries.

    A column that is a dictionary in one of them is a dictionary in the result.
    """
    first = batches[0].schema
    if any(batch.schema != first for batch in batches):
        schemas = [batch.schema for batch in batches]
        first = pa.schema(
            [_choose_field([schema.field(i) for schema in schemas]) for i in range(len(first))]
        )
    tables = [match_dictionaries(pa.Table.from_batches([batch]), first) for batch in batches]
    return pa.concat_tables(tables)


def unify_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with one dictionary per dictionary column, of the values in its rows.

    parquet-cpp writes one dictionary per row group, and its bounds may include values that are in
    the dictionary and in none of the rows.
    """
    if not any(types.is_dictionary(field.type) for field in table.schema):
        return table
    columns = [
        _drop_unused(column) if types.is_dictionary(column.type) else column
        for column in table.unify_dictionaries().columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def decode_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which dictionary columns have the type of their values."""
    return pa.schema(
        [
            field.with_type(field.type.value_type) if types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def match_dictionaries(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with dictionaries in those columns in which ``schema`` has them."""
    if table.schema == schema:
        return table
    columns = [
        _cast_column(column, field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _parts_of_indices(column: pa.ChunkedArray) -> Iterator[pa.Int32Array]:
    for chunk in column.chunks:
        for start in range(0, len(chunk), _ROWS_AT_ONCE):
            yield chunk.indices.slice(start, _ROWS_AT_ONCE)


def _choose_field(fields: Sequence[pa.Field]) -> pa.Field:
    """Return a column's field from the batch in which it is a dictionary, if there is one."""
    return next((field for field in fields if types.is_dictionary(field.type)), fields[0])


def _cast_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if types.is_dictionary(kind):
        return column.dictionary_encode()
    return column.cast(kind)


def _drop_unused(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of one dictionary without the values that are in none of its rows."""
    if column.num_chunks == 0:
        return column
    dictionary = column.chunk(0).dictionary
    is_used = np.zeros(len(dictionary), np.bool_)
    for indices in _parts_of_indices(column):
        is_used[to_numpy(indices.drop_null())] = True
        if is_used.all():  # mostly after the first part
            return column
    used = to_arrow(np.flatnonzero(is_used).astype(np.int32))
    chunks = [
        pa.DictionaryArray.from_arrays(
            pc.index_in(chunk.indices, value_set=used), dictionary.take(used)
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks)
