"""Rows of a DuckLake table that DuckDB had to read, as splits beside those of its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mrflight.sources.base import Split
from mrflight.sources.parquet_source import ParquetReader
from mrflight.sources.schema_check import Cast


class LakeRowsSplit(Split, frozen=True):
    """Rows that the split itself has. ``start`` and ``stop`` count them."""

    rows: bytes = b""
    """An Arrow stream."""

    @property
    def place(self) -> str:
        return f"rows {self.start} to {self.stop} of {self.path}"


@dataclass(frozen=True)
class LakeReader(ParquetReader):
    """Reads runs of row groups, and splits that have rows themselves."""

    def count_rows(self, piece: Split) -> int | None:
        if isinstance(piece, LakeRowsSplit):
            return piece.stop - piece.start
        return super().count_rows(piece)

    def _read(self, split: Split, cast: Cast) -> Iterator[pa.RecordBatch]:
        for piece in split.pieces:
            if not isinstance(piece, LakeRowsSplit):
                yield from super()._read(piece, cast)
                continue
            with pa.ipc.open_stream(piece.rows) as stream:
                rows = stream.read_all().slice(piece.start, piece.stop - piece.start)
            for batch in rows.select(self.schema.names).to_batches():
                if batch.num_rows:
                    yield cast(batch, self.schema)


def rows_split(url: str, rows: pa.Table) -> LakeRowsSplit:
    """Return the split of these rows, which are few."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    place = f"{url}, which DuckDB has read"
    return LakeRowsSplit(place, 0, rows.num_rows, rows.nbytes, rows=sink.getvalue().to_pybytes())
