"""The encoder of parquet files."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.config.formats import ParquetCodec
from mrflight.errors import KeyTypeError
from mrflight.sinks.parts.dictionaries import (
    decode_schema,
    match_dictionaries,
    unify_dictionaries,
)
from mrflight.sinks.parts.encoders import PARQUET_CHUNK, Encoder
from mrflight.sinks.parts.file_statistics import FileStatistics, leaf_paths

ZSTD_LEVEL = 1
SAMPLE_ROWS = 4096
MAX_DISTINCT_FRACTION = 0.9
"""A dictionary pays off while its page stays below 1 MiB, which is parquet-cpp's limit, after which
it goes on without one. With nine distinct values in ten sampled rows a row group has some 20,000,
which is about as many as fit into a page with strings of 18 characters."""

MAX_PAGE_ROWS = 1 << 16
"""The most rows of a page; it also ends at 1 MiB. The default of parquet-cpp is 20,000, but it
initializes a zstd context for each page, so fewer pages are faster."""
MIN_ROWS_AT_ONCE, MAX_ROWS_AT_ONCE = 1 << 10, 1 << 14
"""The rows after which parquet-cpp looks whether a page is full. It also collects the values of a
dictionary each time: with 1,024 rows, its default, lineitem's flags take 1.25 of the time."""
_PAGE_BYTES = 1 << 20


class ParquetEncoder(Encoder):
    """Writes one row group per chunk.

    Decimals of up to 18 digits are stored as integers, as by Spark and delta-rs. Those of lineitem
    are then read in a fifth to a half of the time, and with a dictionary written in 0.6 of it.

    Columns with NaN get no statistics in the footer. parquet-cpp would leave NaN out of the
    bounds, and DuckDB 2.0, DataFusion 55 and pyarrow 26 then miss its rows (`f > 5`, `f <> 1`).
    """

    def __init__(
        self,
        stream: pa.NativeFile,
        first: pa.Table,
        statistics_columns: int | None,
        codec: ParquetCodec,
    ) -> None:
        self._schema = first.schema
        values = decode_schema(first.schema)
        self._footers: list[pq.FileMetaData] = []
        self._nan_columns = _columns_with_nan(first)
        self._statistics: FileStatistics | None = None
        if statistics_columns is not None:
            self._statistics = FileStatistics(values, statistics_columns)
        self._writer = pq.ParquetWriter(
            stream,
            self._written_schema(first.schema),
            compression=codec,
            compression_level=ZSTD_LEVEL if codec == "zstd" else None,
            use_dictionary=dictionary_columns(first) or False,
            store_decimal_as_integer=True,
            write_batch_size=rows_at_once(first),
            max_rows_per_page=MAX_PAGE_ROWS,
            write_statistics=_bounded_columns(first.schema, self._nan_columns) or False,
            metadata_collector=self._footers,
            store_schema=False,
        )
        # This is what Arrow stores as well, except that readers do not get dictionary columns for
        # those that were written from dictionaries.
        schema = base64.b64encode(values.serialize()).decode()
        self._writer.add_key_value_metadata({"ARROW:schema": schema})

    def _written_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the metadata that the file's columns get."""
        return schema

    def accepts(self, rows: pa.Table) -> bool:
        return _columns_with_nan(rows) <= self._nan_columns

    def write(self, rows: pa.Table) -> None:
        rows = match_dictionaries(rows, self._schema)
        groups = max(1, round(rows.num_rows / PARQUET_CHUNK.rows))  # a large batch makes several
        size = max(1, -(-rows.num_rows // groups))
        for start in range(0, max(1, rows.num_rows), size):
            group = unify_dictionaries(rows.slice(start, size))
            if self._statistics is not None:
                self._statistics.observe(group)
            self._writer.write_table(group, row_group_size=size)

    def close(self) -> str:
        self._writer.close()
        return "{}" if self._statistics is None else self._statistics.to_json(self._footers[0])


def rows_at_once(first: pa.Table) -> int:
    """Return how many rows like those of ``first`` fill at most a page of the widest column."""
    widest = max((column.nbytes for column in first.columns), default=0)
    fitting = _PAGE_BYTES * first.num_rows // max(1, widest)
    return min(MAX_ROWS_AT_ONCE, max(MIN_ROWS_AT_ONCE, fitting))


def _columns_with_nan(rows: pa.Table) -> set[str]:
    return {
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(rows.column(field.name))).as_py()
    }


def _bounded_columns(schema: pa.Schema, nan_columns: set[str]) -> list[str]:
    """Return the leaf paths that get statistics. Nested floats get none, as they may have NaN."""
    return [
        path
        for field in schema
        if field.name not in nan_columns and not _has_nested_float(field.type)
        for path in leaf_paths(field)
    ]


def _has_nested_float(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return any(pa.types.is_floating(each) or _has_nested_float(each) for each in inner)


def dictionary_columns(first: pa.Table) -> list[str]:
    """Return the columns, as parquet's leaf paths, whose values repeat enough for a dictionary.

    The sampled rows are spread over ``first``, as neighbours may be equal where others differ.
    Nested columns are assumed to repeat.
    """
    step = max(1, first.num_rows // SAMPLE_ROWS)
    sample = first if step == 1 else first.take(to_arrow(np.arange(0, first.num_rows, step)))
    return [
        path
        for field in first.schema
        if pa.types.is_nested(field.type) or _repeats(sample.column(field.name))
        for path in leaf_paths(field)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    try:
        return _count_distinct(column) < MAX_DISTINCT_FRACTION * len(column)
    except pa.ArrowNotImplementedError:  # Arrow cannot hash this type
        return True


def _count_distinct(column: pa.ChunkedArray) -> int:
    """Return how many values differ, by the kernel if it knows the type: `unique` loads slowly."""
    try:
        numbered = kernel.number_keys([column.combine_chunks()])
    except KeyTypeError:  # Arrow may know it
        numbered = None
    return len(column.unique()) if numbered is None else len(numbered[1])
