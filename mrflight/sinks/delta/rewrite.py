"""Rewrites files of a table without the rows whose keys a merge replaces or deletes.

First the key columns of a file are read, to find the rows to remove. The whole file is read only if
some of its rows remain and some do not. The keys of the merge are held in memory, as many at a time
as fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.key_index import KeyIndex
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.key_bounds import KeyBounds, union_all
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.partition_values import PartitionValues
from mrflight.sources.base import Split
from mrflight.sources.delta_source import check_size
from mrflight.sources.parquet_source import ParquetReader, open_row_groups
from mrflight.sources.read_checks import translate_read_errors
from mrflight.storage import Location
from mrflight.storage.part_name import PartId
from mrflight.storage.store import FileVersion
from mrflight.system.malloc import return_all_freed_memory

_KEYS_DIVISOR = 3
"""A third of a task's memory is for the keys and their index; to build it takes as much again."""
_INDEX_BYTES_PER_KEY = 24
"""The size of the index per key, besides the key."""

Constants = tuple[tuple[str, object], ...]


class KeyFile(msgspec.Struct, frozen=True):
    """A file of the merge, with keys whose rows in the table are replaced or deleted."""

    path: str
    """The path in the store."""
    size_bytes: int
    constants: Constants
    bounds: KeyBounds
    is_delete: bool
    """Whether the rows of the keys are deleted, and not replaced."""


class TargetFile(msgspec.Struct, frozen=True):
    """A file of the table that may have such keys."""

    log_path: str
    """The path in the log."""
    path: str
    """The path in the store."""
    size_bytes: int
    values: PartitionValues
    """The values of the table's partition columns."""
    constants: Constants
    bounds: KeyBounds


class RewriteResult(msgspec.Struct, frozen=True):
    """The result of looking for the keys in one file of the table."""

    target: TargetFile
    updated: int
    """The number of rows that are replaced."""
    deleted: int
    parts: tuple[PartFile, ...]
    """The files with the remaining rows; none if all rows remain, or if no row does."""

    @property
    def is_changed(self) -> bool:
        return self.updated + self.deleted > 0


class RewriteTask(msgspec.Struct, frozen=True):
    """Files of a table to rewrite, and the files of the merge that may have their keys."""

    table: Location
    schema: pa.Schema
    """The schema of the table."""
    keys: tuple[str, ...]
    targets: tuple[TargetFile, ...]
    sources: tuple[KeyFile, ...]
    writer: FilePartWriter
    first_number: int
    """The number of the first target, which stands for a partition in the names of its files."""
    memory_bytes: int

    @property
    def name(self) -> str:
        first, *others = self.targets
        return f"rewrite of {first.log_path}" + (f" and {len(others)} more" if others else "")

    def run(self, attempt: int) -> list[RewriteResult]:
        """Return the result for each target. Raises InputError, OutputError and JobFailedError."""
        files = [_open(self.table, t.path, t.size_bytes, t.constants) for t in self.targets]
        marked = [_RowBits(rows) for _, rows in files]
        splits = [split for split, _ in files]
        counts = [self._mark_rows(deletes, splits, marked) for deletes in (False, True)]
        return [
            RewriteResult(
                target,
                updated,
                removed - updated,
                self._write(number, attempt, split, bits) if 0 < removed < bits.rows else (),
            )
            for number, (target, split, bits, updated, removed) in enumerate(
                zip(self.targets, splits, marked, *counts, strict=True)
            )
        ]

    def _mark_rows(
        self, deletes: bool, splits: Sequence[Split], marked: Sequence[_RowBits]
    ) -> list[int]:
        """Mark the rows with a key of one kind; return how many of each target are marked then."""
        for index, bounds in self._indexes(deletes):
            for target, split, bits in zip(self.targets, splits, marked, strict=True):
                if bounds.overlaps(target.bounds):
                    self._mark(index, split, bits)
            del index  # before the next one is built
            return_all_freed_memory()  # NumPy allocates an index, Arrow the rows that are written
        return [bits.count() for bits in marked]

    def _indexes(self, deletes: bool) -> Iterator[tuple[KeyIndex, KeyBounds]]:
        """Yield indexes of the keys of one kind, as many as fit into memory, and their bounds."""
        max_bytes = self.memory_bytes // _KEYS_DIVISOR
        held: list[pa.RecordBatch] = []
        bounds: list[KeyBounds] = []
        size_bytes = 0
        for source in self.sources:
            if source.is_delete != deletes:
                continue
            split, _ = _open(self.table, source.path, source.size_bytes, source.constants)
            bounds.append(source.bounds)
            for batch in self._reader(self.keys).read(split):
                held.append(batch)
                size_bytes += batch.nbytes + batch.num_rows * _INDEX_BYTES_PER_KEY
                if size_bytes > max_bytes:
                    yield _index(held), union_all(bounds)
                    bounds, size_bytes = [source.bounds], 0
        if held:
            yield _index(held), union_all(bounds)

    def _reader(self, columns: Sequence[str]) -> ParquetReader:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return ParquetReader(schema, root=self.table)

    def _mark(self, index: KeyIndex, split: Split, bits: _RowBits) -> None:
        start = 0
        for batch in self._reader(self.keys).read(split):
            bits.set(index.matches(batch) + start)
            start += batch.num_rows

    def _write(
        self, number: int, attempt: int, split: Split, marked: _RowBits
    ) -> tuple[PartFile, ...]:
        """Write the rows of a target that are not marked, in their order."""
        values = self.targets[number].values
        columns = self.writer.schema.partition_by
        files = self.writer.open_files(PartId(self.first_number + number, attempt), self.schema)
        start = 0
        try:
            for batch in self._reader(self.schema.names).read(split):
                remains = pa.array(~marked.slice(start, batch.num_rows))
                start += batch.num_rows
                rows = batch.filter(remains).drop_columns(list(columns))
                if rows.num_rows:
                    files.add(values, rows)
            return tuple(files.finish())
        except BaseException:
            files.discard()
            raise


def _index(held: list[pa.RecordBatch]) -> KeyIndex:
    """Return an index of the keys, and empty ``held``, so that only the index holds them."""
    keys = pa.Table.from_batches(held)
    held.clear()
    return KeyIndex(keys)


class _RowBits:
    """A set of rows of a file, which takes one bit per row of the file."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._bytes = np.zeros(-(-rows // 8), np.uint8)

    def set(self, rows: npt.NDArray[np.int64]) -> None:
        bits = np.left_shift(1, rows & 7).astype(np.uint8)
        np.bitwise_or.at(self._bytes, rows >> 3, bits)

    def slice(self, start: int, count: int) -> npt.NDArray[np.bool_]:
        first = start // 8
        last = -(-(start + count) // 8)
        bits = np.unpackbits(self._bytes[first:last], bitorder="little")
        return bits[start - 8 * first :][:count].astype(np.bool_)

    def count(self) -> int:
        return int(np.unpackbits(self._bytes).sum(dtype=np.int64))


def _open(table: Location, path: str, size_bytes: int, constants: Constants) -> tuple[Split, int]:
    """Return a split of the whole file, and its number of rows.

    Raises InputError if the file does not have the size that the log says.
    """
    version = FileVersion(size_bytes)
    location = table.at(path).of(version)
    with (
        translate_read_errors("parquet", location),
        _check_size_on_failure(location, size_bytes, table),
        location.open_input() as stream,
    ):
        metadata = open_row_groups(stream).metadata
        groups, rows = metadata.num_row_groups, metadata.num_rows
        check_size(stream.size(), size_bytes, location, table)
    # On a store whose reads do not check the version, the size was checked just now.
    known = version if location.checks_version else None
    return Split(path, 0, groups, size_bytes, constants, known), rows


@contextmanager
def _check_size_on_failure(location: Location, size_bytes: int, table: Location) -> Iterator[None]:
    """After an OSError, raise InputError instead if the file's size is not that in the log."""
    try:
        yield
    except OSError:
        if (found := location.info().size) is not None:
            check_size(found, size_bytes, location, table)
        raise
