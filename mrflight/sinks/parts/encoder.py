"""Writing rows into one file of a format, chunk by chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
import pyarrow as pa


class ChunkLimit(msgspec.Struct, frozen=True):
    """The rows that are encoded at once: as soon as there are this many rows or bytes."""

    rows: int
    size_bytes: int


PARQUET_CHUNK = ChunkLimit(rows=1 << 18, size_bytes=64 << 20)
"""A row group. 122,880 to 1,048,576 rows are written and read back at the same speed
(experiments/parquet_encoding.py), so this is for memory, and for readers that take one
row group per core or skip them by their minima and maxima."""

STREAM_CHUNK = ChunkLimit(rows=1 << 16, size_bytes=4 << 20)
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
