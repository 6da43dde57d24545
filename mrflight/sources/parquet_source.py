"""Parquet files as a source, and the reader that Delta tables share with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.compute import arrow_compute as pc
from mrflight.compute.layout import canonical_schema
from mrflight.sources.base import DECOMPRESSION_RATIO, FileReader, Source, Split, split_runs
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.needed_parts import (
    Bounds,
    NeededParts,
    bounds_of_row_groups,
    needed_parts,
)
from mrflight.sources.read_checks import translate_read_errors, verify_unchanged
from mrflight.sources.schema_check import (
    Cast,
    cast_batch,
    cast_encoded_batch,
    with_constants,
)
from mrflight.sources.schema_union import agree_on_schema, explain_lost_values
from mrflight.storage import Location
from mrflight.storage.store import FileVersion

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 128 << 10
_DECODED_BYTES = 128 << 20


@dataclass(frozen=True)
class ParquetReader(FileReader):
    """Reads runs of row groups as ``schema``.

    A file may lack columns. They have the split's constants, or else nulls.
    """

    schema: pa.Schema
    origins: Mapping[str, str] = field(default_factory=dict)
    """See `AgreedSchema`."""

    def select(self, columns: Sequence[str]) -> ParquetReader:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, cast_batch)

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, cast_encoded_batch)

    def count_rows(self, piece: Split) -> int | None:
        """Return the rows of the row groups, by the footer of the file."""
        if piece.start == piece.stop:
            return 0
        location = self.root.at(piece.path)
        with (
            translate_read_errors("parquet", location),
            verify_unchanged(location, piece.version) as location,
            location.open_input() as file,
        ):
            footer = open_row_groups(file).metadata
            return sum(footer.row_group(i).num_rows for i in range(piece.start, piece.stop))

    def _read(self, split: Split, cast: Cast) -> Iterator[pa.RecordBatch]:
        constants = dict(split.constants)
        stored = [name for name in self.schema.names if name not in constants]
        for piece in split.pieces:
            location = self.root.at(piece.path)
            with (
                translate_read_errors("parquet", location),
                explain_lost_values(location.url, self.origins),
                verify_unchanged(location, piece.version) as location,
            ):
                for batch in read_row_groups(location, piece, stored):
                    if batch.num_rows:
                        yield cast(with_constants(batch, self.schema, constants), self.schema)


def open_parquet(found: FoundInput, split_bytes: int) -> Source:
    """Return the source of a parquet input. Reads every file's footer."""
    read = partial(_read_head, found, _bounded_columns(found))
    heads = list(found.each(read, found.files))
    agreed = agree_on_schema(found, [(found.root.at(h.path).url, h.schema) for h in heads])
    splits, skipped = cut_needed(heads, needed_parts(found, agreed.schema), split_bytes)
    whole = Source(
        name=found.name,
        reader=ParquetReader(agreed.schema, agreed.origins, root=found.root),
        files=tuple(file.path for file in found.files),
        size_bytes=sum(file.size_bytes for file in found.files),
        splits=tuple(splits),
        rows=sum(head.rows for head in heads),
        decompression_ratio=DECOMPRESSION_RATIO,
        are_alike=are_alike(heads, agreed.schema),
        differences=agreed.differences,
    )
    return whole.without_row_groups(skipped)


class Head(NamedTuple):
    """What the footer of a file says."""

    path: str
    version: FileVersion
    schema: pa.Schema
    sizes: list[int]
    """The bytes of each row group."""
    bounds: list[Bounds]
    """The bounds of some columns in each row group."""
    rows: int


def read_head(stream: pa.NativeFile, path: str, version: FileVersion, names: Sequence[str]) -> Head:
    """Read the footer of an open file, with the bounds of the named columns."""
    parquet = open_row_groups(stream)
    sizes = row_group_sizes(parquet, version.size_bytes)
    bounds = bounds_of_row_groups(parquet.metadata, names)
    rows = parquet.metadata.num_rows
    return Head(path, version, parquet.schema_arrow, sizes, bounds, rows)


def cut_needed(
    heads: Sequence[Head], needed: NeededParts, split_bytes: int
) -> tuple[list[Split], int]:
    """Return splits of the row groups that are needed, and the number of the others."""
    are_needed = iter(needed.among([each for head in heads for each in head.bounds]))
    splits: list[Split] = []
    skipped = 0
    for head in heads:
        of_file = list(islice(are_needed, len(head.sizes)))
        splits += split_runs(head.path, head.version, head.sizes, split_bytes, of_file)
        skipped += of_file.count(False)
    return splits, skipped


def are_alike(heads: Sequence[Head], schema: pa.Schema) -> bool:
    """Return whether all files have one schema, which has the columns of ``schema``."""
    schemas = (head.schema.remove_metadata() for head in heads)
    if len({each.to_string(show_field_metadata=False) for each in schemas}) != 1:
        return False
    own, other = (canonical_schema(each) for each in (heads[0].schema, schema))
    return own.names == other.names and own.types == other.types


def _read_head(found: FoundInput, names: Sequence[str], file: InputFile) -> Head:
    location = found.location(file)
    with translate_read_errors("parquet", location), location.open_input() as stream:
        return read_head(stream, file.path, file.version, names)


def _bounded_columns(found: FoundInput) -> list[str]:
    """Return the columns that have conditions, by the schema of the first file."""
    if not found.spec.has_sql:
        return []
    return list(needed_parts(found, _read_head(found, (), found.files[0]).schema).columns)


def open_row_groups(
    file: pa.NativeFile,
    footer: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] | None = None,
) -> pq.ParquetFile:
    """Open a file for reading one row group after the other in little memory.

    With a buffer per column and without pre-buffering, 12 to 19 MiB of a row group of 98 MiB were
    held instead of 104, in the same time. Spark's old int96 timestamps are read as microseconds,
    which is their precision. Columns in ``dictionaries`` are read as dictionaries.
    """
    return pq.ParquetFile(
        file,
        metadata=footer,
        read_dictionary=dictionaries,
        pre_buffer=False,
        buffer_size=1 << 20,
        coerce_int96_timestamp_unit="us",
    )


def row_group_sizes(parquet: pq.ParquetFile, file_bytes: int) -> list[int]:
    """Return the bytes on disk of each row group, estimated from its uncompressed bytes."""
    metadata = parquet.metadata
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    total = max(1, sum(sizes))
    return [file_bytes * size // total for size in sizes]


def read_row_groups(
    location: Location, split: Split, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of those ``columns`` that the file has, in its order and with its types.

    If the file has none of them, the batches have no columns, and still the number of rows.
    String columns that seem to have few distinct values stay dictionaries: decoding a
    dictionary afterwards takes 6 to 13 ns a value, and Arrow takes 15 to 21 ns as it reads.
    """
    if split.start == split.stop and not location.checks_version:
        return
    with location.open_input() as file:
        parquet = open_row_groups(file)
        if split.start == split.stop:
            return
        stored = set(parquet.schema_arrow.names)
        selected = [name for name in columns if name in stored]
        dictionaries = _low_cardinality_columns(parquet, split, selected)
        if dictionaries:
            parquet = open_row_groups(file, parquet.metadata, dictionaries)
        for batch in parquet.iter_batches(
            batch_size=_batch_rows(parquet, split.start),
            row_groups=list(range(split.start, split.stop)),
            columns=selected,
            use_threads=False,
        ):
            yield from _decodable_slices(batch, dictionaries)


def _decodable_slices(
    batch: pa.RecordBatch, dictionaries: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield slices of the batch in which no dictionary decodes to more than `_DECODED_BYTES`.

    128 Ki rows of a column can be small in the file and still decode to more bytes than 32-bit
    offsets can address. No number in the footer tells.
    """
    longest = 1
    for column in map(batch.column, dictionaries):
        if isinstance(column, pa.DictionaryArray):  # a leaf of a struct may have the same name
            longest = max(longest, pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
    rows = max(1, _DECODED_BYTES // longest)
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


def _low_cardinality_columns(
    parquet: pq.ParquetFile, split: Split, columns: Sequence[str]
) -> list[str]:
    """Return the string columns that take less than a byte per row, as small dictionaries do."""
    metadata, schema = parquet.metadata, parquet.schema_arrow
    strings = [name for name in columns if schema.field(name).type == pa.string()]
    if not strings:
        return []
    groups = [metadata.row_group(number) for number in range(split.start, split.stop)]
    rows = sum(group.num_rows for group in groups)
    leaves = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    return [
        name
        for name in strings
        if sum(group.column(leaves[name]).total_uncompressed_size for group in groups) < rows
    ]


def _batch_rows(parquet: pq.ParquetFile, row_group: int) -> int:
    group = parquet.metadata.row_group(row_group)
    row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
    return int(min(_BATCH_ROWS, max(1, _BATCH_BYTES // row_bytes)))
