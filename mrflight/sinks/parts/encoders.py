"""The encoders of csv and arrow files, and what every encoder of part files does."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
import pyarrow as pa


class ChunkLimit(msgspec.Struct, frozen=True):
    """Rows are encoded together as soon as there are this many rows or this many bytes."""

    rows: int
    size_bytes: int


PARQUET_CHUNK = ChunkLimit(rows=1 << 18, size_bytes=64 << 20)
"""A row group. Groups of 122,880 to 1,048,576 rows are written and read back at the same
speed. The limit is for memory, and for readers that take one row group per core or skip groups by
their minima and maxima."""

STREAM_CHUNK = ChunkLimit(rows=1 << 16, size_bytes=4 << 20)
"""A record batch, or a piece of csv. It is large enough that its header does not matter."""


class Encoder(ABC):
    """Encodes the rows of one file. An encoder of a file that is discarded need not be closed."""

    def accepts(self, rows: pa.Table) -> bool:
        """Return whether ``rows`` may follow in this file; if not, they need another file."""
        return True

    @abstractmethod
    def write(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def close(self) -> str:
        """End the file and return its statistics as a Delta log has them.

        The stream stays open.
        """


class CsvEncoder(Encoder):
    """Writes csv: a header with the first chunk, and quotes where a value needs them."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        import pyarrow.csv as pa_csv

        self._writer = pa_csv.CSVWriter(stream, schema)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self) -> str:
        self._writer.close()
        return "{}"


class ArrowEncoder(Encoder):
    """Writes the Arrow IPC file format, one record batch per chunk."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(stream, schema)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks())  # one record batch, not one per piece

    def close(self) -> str:
        self._writer.close()
        return "{}"
