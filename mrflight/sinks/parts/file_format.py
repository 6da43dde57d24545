"""The format of a table's part files, which decides how they are encoded."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.config.formats import OutputFormat, ParquetCodec
from mrflight.sinks.parts.encoders import (
    PARQUET_CHUNK,
    STREAM_CHUNK,
    ArrowEncoder,
    ChunkLimit,
    CsvEncoder,
    Encoder,
)
from mrflight.sinks.parts.field_ids import FieldIds

DEFAULT_CODEC: ParquetCodec = "zstd"
"""zstd files are half as large as those of snappy and lz4, for a seventh of the time of a clicks
job."""


class FileFormat(msgspec.Struct, frozen=True):
    """The encoding of a table's files. Picklable."""

    format: OutputFormat
    statistics_columns: int | None = None
    """The number of leading columns with statistics in a Delta log; None for no statistics."""
    codec: ParquetCodec = DEFAULT_CODEC
    field_ids: FieldIds | None = None
    """The ids of the columns of an Iceberg table."""

    @property
    def suffix(self) -> str:
        return "parquet" if self.format in ("delta", "iceberg", "ducklake") else self.format

    @property
    def keeps_partition_columns(self) -> bool:
        """Whether the files have the columns by which the table is partitioned."""
        return self.format == "iceberg"

    @property
    def has_dictionaries(self) -> bool:
        """Whether the encoder accepts low-cardinality string columns as dictionaries."""
        return self.suffix == "parquet"

    @property
    def chunk(self) -> ChunkLimit:
        """The rows that are gathered before they are encoded together."""
        return PARQUET_CHUNK if self.suffix == "parquet" else STREAM_CHUNK

    def open(self, stream: pa.NativeFile, first: pa.Table) -> Encoder:
        """Return an encoder for rows like those of the first chunk, which it does not write yet."""
        if self.suffix == "parquet":
            from mrflight.sinks.parts.parquet_encoder import ParquetEncoder

            if self.field_ids is not None:
                from mrflight.sinks.parts.iceberg_encoder import IcebergEncoder

                return IcebergEncoder(stream, first, self.codec, self.field_ids)
            return ParquetEncoder(stream, first, self.statistics_columns, self.codec)
        if self.format == "csv":
            return CsvEncoder(stream, first.schema)
        return ArrowEncoder(stream, first.schema)
