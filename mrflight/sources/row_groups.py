"""Row groups of a parquet file, as a stream of batches that holds little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mrflight.sources.base import Split
from mrflight.storage import Location

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 128 << 10
_DECODED_BYTES = 128 << 20


def open_row_groups(
    file: pa.NativeFile,
    footer: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] | None = None,
) -> pq.ParquetFile:
    """Open parquet for reads of one row group after the other.

    With a buffer per column and no pre-buffering, 12 to 19 MiB were held of a
    row group of 98 MiB instead of 104, in the same time. Spark's old
    timestamps are read as the microseconds that they are. Columns of ``dictionaries`` are not
    decoded to their values.
    """
    return pq.ParquetFile(
        file,
        metadata=footer,
        read_dictionary=dictionaries,
        pre_buffer=False,
        buffer_size=1 << 20,
        coerce_int96_timestamp_unit="us",
    )


def row_group_weights(parquet: pq.ParquetFile, size_bytes: int) -> list[int]:
    """Bytes on disk of each row group, by its share of the bytes before compression."""
    metadata = parquet.metadata
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    total = max(1, sum(sizes))
    return [size_bytes * size // total for size in sizes]


def read_row_groups(
    location: Location, split: Split, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of those of ``columns`` that the file has, in its order and its types.

    Without any of them, batches of no columns that still count the rows. Strings that have
    dictionaries come as those, if they seem to be few: to make strings of them afterwards takes
    6 to 13 ns a value, where Arrow takes 15 to 21 as it reads.
    """
    if split.start == split.stop and not location.checks_version:
        return
    with location.open_input() as file:
        parquet = open_row_groups(file)
        if split.start == split.stop:
            return
        names = set(parquet.schema_arrow.names)
        wanted = [name for name in columns if name in names]
        few = _few_valued(parquet, split, wanted)
        if few:
            parquet = open_row_groups(file, parquet.metadata, few)
        for batch in parquet.iter_batches(
            batch_size=_batch_rows(parquet, split.start),
            row_groups=list(range(split.start, split.stop)),
            columns=wanted,
            use_threads=False,
        ):
            yield from _decodable(batch, few)


def _decodable(batch: pa.RecordBatch, dictionaries: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of no more than `_DECODED_BYTES` in a column that was a dictionary.

    A column's 128 Ki rows are small in the file even with values of which 32-bit offsets reach
    fewer, so that no number of the footer tells.
    """
    longest = 1
    for column in map(batch.column, dictionaries):
        if isinstance(column, pa.DictionaryArray):  # not where a struct's leaf has its name
            longest = max(longest, pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
    rows = max(1, _DECODED_BYTES // longest)
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


def _few_valued(parquet: pq.ParquetFile, split: Split, columns: Sequence[str]) -> list[str]:
    """Those string columns of which a row takes no more than a byte, as of a dictionary it does."""
    metadata, schema = parquet.metadata, parquet.schema_arrow
    groups = [metadata.row_group(number) for number in range(split.start, split.stop)]
    rows = sum(group.num_rows for group in groups)
    leaves = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    return [
        name
        for name in columns
        if schema.field(name).type == pa.string()
        and sum(group.column(leaves[name]).total_uncompressed_size for group in groups) < rows
    ]


def _batch_rows(parquet: pq.ParquetFile, row_group: int) -> int:
    group = parquet.metadata.row_group(row_group)
    row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
    return int(min(_BATCH_ROWS, max(1, _BATCH_BYTES // row_bytes)))
