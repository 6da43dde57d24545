"""Reads splits of many small files about as fast as those of a large one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
from msgspec import structs
from pyarrow import types

from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import FileReader, PackedSplit, Reader, Source, Split, pack_splits
from mrflight.sources.schema_check import types_within
from mrflight.storage.whole_files import MAX_FILE_BYTES, files_ahead

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 128 << 10
_SMALL_BATCH_BYTES = 256 << 10
"""Larger batches are passed on as they are: a copy of them costs more than it saves."""

_Read = Callable[[Split], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class PackedReader(Reader):
    """Reads packed splits with the reader of a format.

    The next files are fetched from a store while one is read, and small batches are joined.
    """

    reader: FileReader
    schema: pa.Schema | None

    @property
    def reads_packs(self) -> bool:
        return True

    def select(self, columns: Sequence[str]) -> Reader:
        selected = self.reader.select(columns)
        if selected is self.reader:
            return self
        return replace(self, reader=selected, schema=selected.schema)

    def with_bad_rows(self, log: BadRowLog) -> Reader:
        return replace(self, reader=self.reader.with_bad_rows(log))

    def count_rows(self, piece: Split) -> int | None:
        return self.reader.count_rows(piece)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, lambda reader: reader.read)

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._read(split, lambda reader: reader.read_encoded)

    def _read(
        self, split: Split, method: Callable[[FileReader], _Read]
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(split, PackedSplit):
            return join_batches(self._read_pack(split, method))
        return method(self.reader)(split)

    def _read_pack(
        self, split: PackedSplit, method: Callable[[FileReader], _Read]
    ) -> Iterator[pa.RecordBatch]:
        small = {
            piece.path: piece.version
            for piece in split.pieces
            if piece.version is not None and _is_small(piece)
        }
        with files_ahead(self.reader.root.store, small) as store:
            fetching = self.reader.in_store(store)
            for (is_small, _), run in groupby(split.pieces, lambda p: (_is_small(p), p.constants)):
                reader = fetching if is_small else self.reader
                yield from method(reader)(pack_splits(list(run)))


def read_packs(source: Source) -> Source:
    """Return the source with a reader of packed splits, whose own reader reads files."""
    assert isinstance(source.reader, FileReader), source.reader
    reader = PackedReader(source.reader, source.reader.schema)
    return structs.replace(source, reader=reader)


def _is_small(piece: Split) -> bool:
    """Return whether the file of a piece is read as a whole."""
    return piece.version is not None and 0 < piece.version.size_bytes <= MAX_FILE_BYTES


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, with small batches of one schema that follow one another joined."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        nbytes = batch.nbytes
        rows, size = rows + batch.num_rows, size + nbytes
        fits = nbytes <= _SMALL_BATCH_BYTES and rows <= _BATCH_ROWS and size <= _BATCH_BYTES
        if waiting and not (fits and batch.schema == waiting[0].schema):
            yield _joined(waiting)
            waiting, rows, size = [], batch.num_rows, nbytes
        if waiting or (nbytes <= _SMALL_BATCH_BYTES and _can_join(batch.schema)):
            waiting.append(batch)
        else:
            yield batch
            rows = size = 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _can_join(schema: pa.Schema) -> bool:
    """Return whether the dictionaries of several batches fit into one, with its type of index."""
    return all(
        inner.index_type.bit_width >= 32
        for type in schema.types
        for inner in (type, *types_within(type))
        if types.is_dictionary(inner)
    )
