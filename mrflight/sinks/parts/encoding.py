"""Which encoder writes a table's files, and what they are called."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.config.spec import OutputFormat, ParquetCodec
from mrflight.sinks.parts.encoder import PARQUET_CHUNK, STREAM_CHUNK, ChunkLimit, Encoder

CODEC: ParquetCodec = "zstd"
"""Half as large as snappy and lz4, for a seventh of the time of a clicks job
(experiments/parquet_encoding.py)."""


class FileFormat(msgspec.Struct, frozen=True):
    """How the files of a table are written. Picklable."""

    format: OutputFormat
    statistics_columns: int | None = None
    """Of how many leading columns a Delta log gets minima and maxima; None: no statistics."""
    codec: ParquetCodec = CODEC

    @property
    def suffix(self) -> str:
        return "parquet" if self.format == "delta" else self.format

    @property
    def has_dictionaries(self) -> bool:
        """Whether the encoder takes columns of few strings as dictionaries."""
        return self.suffix == "parquet"

    @property
    def chunk(self) -> ChunkLimit:
        """How many rows are gathered before they are encoded."""
        return PARQUET_CHUNK if self.suffix == "parquet" else STREAM_CHUNK

    def open(self, stream: pa.NativeFile, first: pa.Table) -> Encoder:
        """An encoder for rows like ``first``, its first chunk (which is still to be written)."""
        if self.suffix == "parquet":
            from mrflight.sinks.parts.parquet_encoder import ParquetEncoder

            return ParquetEncoder(stream, first, self.statistics_columns, self.codec)
        if self.format == "csv":
            from mrflight.sinks.parts.csv_encoder import CsvEncoder

            return CsvEncoder(stream, first.schema)
        from mrflight.sinks.parts.arrow_encoder import ArrowEncoder

        return ArrowEncoder(stream, first.schema)
