"""Writing rows into one file of a format, chunk by chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from mrflight.spec import OutputFormat


@dataclass(frozen=True)
class Encoding:
    """How the files of a table are written. Picklable."""

    format: OutputFormat
    statistics_columns: int | None = None
    """Of how many leading columns a Delta log gets minima and maxima; None: no statistics."""

    @property
    def suffix(self) -> str:
        return "parquet" if self.format == "delta" else self.format

    @property
    def chunk(self) -> Chunk:
        """How many rows are gathered before they are encoded."""
        return PARQUET_CHUNK if self.suffix == "parquet" else STREAM_CHUNK

    def open(self, stream: pa.NativeFile, first: pa.Table) -> Encoder:
        """An encoder for rows like ``first``, its first chunk (which is still to be written)."""
        if self.suffix == "parquet":
            from mrflight.sinks.parquet_encoder import ParquetEncoder

            return ParquetEncoder(stream, first, self.statistics_columns)
        if self.format == "csv":
            from mrflight.sinks.csv_encoder import CsvEncoder

            return CsvEncoder(stream, first.schema)
        from mrflight.sinks.arrow_encoder import ArrowEncoder

        return ArrowEncoder(stream, first.schema)


@dataclass(frozen=True)
class Chunk:
    """The rows that are encoded at once: as soon as there are this many rows or bytes."""

    rows: int
    size_bytes: int


PARQUET_CHUNK = Chunk(rows=1 << 18, size_bytes=64 << 20)
"""A row group. 122,880 to 1,048,576 rows are written and read back at the same speed
(experiments/parquet_encoding.py), so this is for memory, and for readers that take one
row group per core or skip them by their minima and maxima."""

STREAM_CHUNK = Chunk(rows=1 << 16, size_bytes=4 << 20)
"""A record batch, or a piece of csv: large enough that its header does not count."""


class Encoder(ABC):
    """One file being written. Not closing it is fine where the file is thrown away."""

    def takes(self, rows: pa.Table) -> bool:
        """Whether ``rows`` may go on in this file; if not, they begin another one."""
        return True

    @abstractmethod
    def write(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def close(self) -> str:
        """End the file, without closing its stream; its statistics as a Delta log has them."""
