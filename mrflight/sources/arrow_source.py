"""Arrow IPC files as a source, in the file format and in the stream format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from mrflight.sources.base import FileReader, Source, Split, split_runs
from mrflight.sources.found_input import FoundInput, InputFile
from mrflight.sources.read_checks import translate_read_errors, verify_unchanged
from mrflight.sources.schema_check import cast_batch, with_constants
from mrflight.sources.schema_union import agree_on_schema, explain_lost_values

_FILE_MAGIC = b"ARROW1"
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class ArrowReader(FileReader):
    """Reads runs of record batches as ``schema``; a column that a file lacks is null.

    Columns that need no cast stay pages of the memory-mapped file.
    """

    schema: pa.Schema
    origins: Mapping[str, str] = field(default_factory=dict)
    """See `AgreedSchema`."""

    def select(self, columns: Sequence[str]) -> ArrowReader:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for piece in split.pieces:
            location = self.root.at(piece.path)
            with (
                translate_read_errors("arrow", location),
                explain_lost_values(location.url, self.origins),
                verify_unchanged(location, piece.version) as location,
                location.open_mapped() as file,
            ):
                for batch in _read_batches(file, piece, self.schema.names):
                    whole = with_constants(batch, self.schema, {})
                    yield from slices(cast_batch(whole, self.schema))

    def count_rows(self, piece: Split) -> int | None:
        """Return the sum of the rows of the batches, which have their own; None for a stream."""
        location = self.root.at(piece.path)
        with (
            translate_read_errors("arrow", location),
            verify_unchanged(location, piece.version) as location,
            location.open_mapped() as file,
        ):
            if not _is_file_format(file):
                return None
            options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[0])
            opened = pa.ipc.open_file(file, options=options)
            return sum(opened.get_batch(i).num_rows for i in range(piece.start, piece.stop))


def open_arrow(found: FoundInput, split_bytes: int) -> Source:
    """Return the source of an arrow input. Reads every file's schema."""
    splits: list[Split] = []
    schemas = []
    heads = found.each(partial(_read_head, found), found.files)
    for file, (schema, sizes) in zip(found.files, heads, strict=True):
        schemas.append((found.location(file).url, schema))
        splits += split_runs(file.path, file.version, sizes, split_bytes)
    agreed = agree_on_schema(found, schemas)
    return Source(
        name=found.name,
        reader=ArrowReader(agreed.schema, agreed.origins, root=found.root),
        files=tuple(file.path for file in found.files),
        size_bytes=sum(file.size_bytes for file in found.files),
        splits=tuple(splits),
        differences=agreed.differences,
    )


def _read_head(found: FoundInput, file: InputFile) -> tuple[pa.Schema, list[int]]:
    """Return the schema of a file and the sizes of its batches. A stream counts as one batch.

    All batches are assumed to have the same size: finding each size would cost a read.
    """
    location = found.location(file)
    with translate_read_errors("arrow", location), location.open_mapped() as stream:
        if not _is_file_format(stream):
            return pa.ipc.open_stream(stream).schema, [file.size_bytes]
        opened = pa.ipc.open_file(stream)
        count = opened.num_record_batches
        return opened.schema, [file.size_bytes // max(1, count)] * count


def _read_batches(
    file: pa.NativeFile, split: Split, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    if not _is_file_format(file):
        yield from pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False))
        return
    names = pa.ipc.open_file(file).schema.names
    selected = [i for i, name in enumerate(names) if name in columns]
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=selected)
    opened = pa.ipc.open_file(file, options=options)
    for i in range(split.start, split.stop):
        yield opened.get_batch(i)


def _is_file_format(file: pa.NativeFile) -> bool:
    return bool(file.read_at(len(_FILE_MAGIC), 0) == _FILE_MAGIC)


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a few MiB of a batch, which its writer may have made of any size."""
    if batch.num_rows == 0:
        return
    count = min(batch.num_rows, -(-batch.nbytes // _BATCH_BYTES) or 1)
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
