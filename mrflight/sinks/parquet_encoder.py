"""Part files in parquet, and what their footer says about them.

The choices are measured by experiments/parquet_encoding.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mrflight.sinks.delta_stats import file_stats
from mrflight.sinks.encoder import Encoder
from mrflight.sinks.parquet_leaves import leaf_paths

CODEC, CODEC_LEVEL = "zstd", 1
SAMPLE_ROWS = 4096
REPEATS_BELOW = 0.9
"""A dictionary pays while its page stays below 1 MiB (parquet-cpp's limit, after which it goes
on without). At nine different values in ten rows of the sample a row group has some 20,000,
which is about as many as fit with strings of 18 characters."""


class ParquetEncoder(Encoder):
    def __init__(
        self, stream: pa.NativeFile, first: pa.Table, statistics_columns: int | None
    ) -> None:
        self._schema = first.schema
        self._statistics_columns = statistics_columns
        self._footers: list[pq.FileMetaData] = []
        self._nan_columns: set[str] = set()
        self._writer = pq.ParquetWriter(
            stream,
            first.schema,
            compression=CODEC,
            compression_level=CODEC_LEVEL,
            use_dictionary=dictionary_columns(first) or False,
            metadata_collector=self._footers,
        )

    def write(self, rows: pa.Table) -> None:
        if self._statistics_columns is not None:
            self._nan_columns.update(_columns_with_nan(rows))
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def close(self) -> str:
        self._writer.close()
        if self._statistics_columns is None:
            return "{}"
        return file_stats(
            self._footers[0], self._schema, self._nan_columns, self._statistics_columns
        )


def dictionary_columns(first: pa.Table) -> list[str]:
    """The columns, by parquet's leaf paths, whose values repeat enough for a dictionary.

    Judged by rows spread over ``first``, as neighbours may be equal where the rest is not.
    Nested columns are taken to repeat.
    """
    step = max(1, first.num_rows // SAMPLE_ROWS)
    sample = first.take(pa.array(np.arange(0, first.num_rows, step)))
    return [
        path
        for field in first.schema
        if pa.types.is_nested(field.type) or _repeats(sample.column(field.name))
        for path in leaf_paths(field)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    try:
        return len(column.unique()) < REPEATS_BELOW * len(column)
    except pa.ArrowNotImplementedError:  # a type without a hash
        return True


def _columns_with_nan(rows: pa.Table) -> list[str]:
    return [
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(rows.column(field.name))).as_py()
    ]
