"""Parquet files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mrflight.sources.base import COMPRESSED, Reader, Source, Split
from mrflight.sources.discovery import FoundInput, InputFile
from mrflight.sources.file_version import unchanged
from mrflight.sources.read_errors import reading
from mrflight.sources.row_groups import open_row_groups, read_row_groups, row_group_weights
from mrflight.sources.schema_check import Conform, agreed_schema, conform, conform_encoded
from mrflight.sources.splitting import split_runs
from mrflight.storage import Location


@dataclass(frozen=True)
class ParquetReader(Reader):
    """Reads runs of row groups as ``schema``, which has columns of every file."""

    schema: pa.Schema
    root: Location

    def narrowed(self, columns: Sequence[str]) -> ParquetReader:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, conform)

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, conform_encoded)

    def _read(self, split: Split, conform: Conform) -> Iterator[pa.RecordBatch]:
        location = self.root.at(split.path)
        with reading("parquet", location), unchanged(location, split.version) as location:
            for batch in read_row_groups(location, split, self.schema.names):
                if batch.num_rows:
                    yield conform(batch, self.schema)


def open_parquet(found: FoundInput, split_bytes: int) -> Source:
    """The source of a parquet input: reads every file's footer."""
    splits: list[Split] = []
    schemas = []
    for file in found.files:
        schema, weights = _footer(found, file)
        schemas.append((found.location(file).url, schema))
        splits += split_runs(file.path, file.version, weights, split_bytes)
    return Source(
        name=found.name,
        reader=ParquetReader(agreed_schema(found, schemas), found.root),
        files=tuple(file.path for file in found.files),
        size_bytes=sum(file.size_bytes for file in found.files),
        splits=tuple(splits),
        expansion=COMPRESSED,
    )


def _footer(found: FoundInput, file: InputFile) -> tuple[pa.Schema, list[int]]:
    """The schema of a file, and the weights of its row groups."""
    location = found.location(file)
    with reading("parquet", location), location.open_input() as stream:
        parquet = open_row_groups(stream)
        return parquet.schema_arrow, row_group_weights(parquet, file.size_bytes)
