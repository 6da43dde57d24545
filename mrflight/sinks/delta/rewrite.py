"""Rewriting files of a table without the rows whose keys a merge brings, or removes.

A file is read twice: its key columns, to see which rows go, and all of it only where some stay
and some go. Of the merge's keys as many are held at a time as the memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.sinks.delta.key_index import KeyIndex
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.key_bounds import KeyBounds, union_all
from mrflight.sinks.parts.part_name import PartId
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.partition_values import PartitionValues
from mrflight.sources.base import Split
from mrflight.sources.delta_source import DeltaReader, check_size
from mrflight.sources.parquet_source import open_row_groups
from mrflight.sources.read_checks import translate_read_errors
from mrflight.storage import Location
from mrflight.storage.store import FileVersion
from mrflight.system.malloc import return_all_freed_memory

_KEYS_SHARE = 3
"""A third of a task's memory is keys and their index, as making it takes as much again."""
_INDEX_BYTES = 24
"""Of a key in the index, beside the key."""

Constants = tuple[tuple[str, object], ...]


class KeyFile(msgspec.Struct, frozen=True):
    """A file whose rows' keys replace, or remove, those of the table."""

    path: str
    """Whole, as the store has it."""
    size_bytes: int
    constants: Constants
    bounds: KeyBounds
    removes: bool
    """Whether no rows come in the place of those of the table."""


class TargetFile(msgspec.Struct, frozen=True):
    """A file of the table that may have such keys."""

    logged: str
    """Its path as the log has it."""
    path: str
    """Whole, as the store has it."""
    size_bytes: int
    values: PartitionValues
    """Of the columns that the table is partitioned by."""
    constants: Constants
    bounds: KeyBounds


class Rewritten(msgspec.Struct, frozen=True):
    """What came of one file of the table."""

    target: TargetFile
    updated: int
    """Rows in whose place others come."""
    deleted: int
    parts: tuple[PartFile, ...]
    """The rows that stay, where some go; where all go, none."""

    @property
    def is_changed(self) -> bool:
        return self.updated + self.deleted > 0


class RewriteTask(msgspec.Struct, frozen=True):
    """Some files of a table, and the files that may have their keys."""

    table: Location
    schema: pa.Schema
    """Of the table."""
    keys: tuple[str, ...]
    targets: tuple[TargetFile, ...]
    sources: tuple[KeyFile, ...]
    writer: FilePartWriter
    first_number: int
    """What the files are called by, in the place of partitions."""
    memory_bytes: int

    @property
    def name(self) -> str:
        first, *others = self.targets
        return f"rewrite of {first.logged}" + (f" and {len(others)} more" if others else "")

    def run(self, attempt: int) -> list[Rewritten]:
        """Of each target what came of it. Raises InputError, OutputError and JobFailedError."""
        files = [_whole(self.table, t.path, t.size_bytes, t.constants) for t in self.targets]
        found = [_RowBits(rows) for _, rows in files]
        splits = [split for split, _ in files]
        counts = [self._find(removes, splits, found) for removes in (False, True)]
        return [
            Rewritten(
                target,
                updated,
                gone - updated,
                self._write(number, attempt, target, split, bits) if 0 < gone < bits.rows else (),
            )
            for number, (target, (split, _), bits, updated, gone) in enumerate(
                zip(self.targets, files, found, *counts, strict=True)
            )
        ]

    def _find(self, removes: bool, splits: Sequence[Split], found: Sequence[_RowBits]) -> list[int]:
        """Mark the rows that have a key of one kind; how many of each target are marked then."""
        for index, bounds in self._indexes(removes):
            for target, split, bits in zip(self.targets, splits, found, strict=True):
                if bounds.overlaps(target.bounds):
                    self._mark(index, split, bits)
            del index  # before the next is made
            return_all_freed_memory()  # an index is NumPy's, the rows that are written Arrow's
        return [bits.count() for bits in found]

    def _indexes(self, removes: bool) -> Iterator[tuple[KeyIndex, KeyBounds]]:
        """The keys of one kind, as many at a time as may be held, and between what they lie."""
        most_bytes = self.memory_bytes // _KEYS_SHARE
        held: list[pa.RecordBatch] = []
        bounds: list[KeyBounds] = []
        size_bytes = 0
        for source in self.sources:
            if source.removes != removes:
                continue
            split, _ = _whole(self.table, source.path, source.size_bytes, source.constants)
            bounds.append(source.bounds)
            for batch in self._reader(self.keys).read(split):
                held.append(batch)
                size_bytes += batch.nbytes + batch.num_rows * _INDEX_BYTES
                if size_bytes > most_bytes:
                    yield _index(held), union_all(bounds)
                    bounds, size_bytes = [source.bounds], 0
        if held:
            yield _index(held), union_all(bounds)

    def _reader(self, columns: Sequence[str]) -> DeltaReader:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return DeltaReader(schema, self.table)

    def _mark(self, index: KeyIndex, split: Split, bits: _RowBits) -> None:
        start = 0
        for batch in self._reader(self.keys).read(split):
            bits.set(index.matches(batch) + start)
            start += batch.num_rows

    def _write(
        self, number: int, attempt: int, target: TargetFile, split: Split, bits: _RowBits
    ) -> tuple[PartFile, ...]:
        """The rows that are not marked, in their order."""
        columns = self.writer.schema.partition_by
        files = self.writer.open_files(PartId(self.first_number + number, attempt), self.schema)
        start = 0
        try:
            for batch in self._reader(self.schema.names).read(split):
                stays = pa.array(~bits.slice(start, batch.num_rows))
                start += batch.num_rows
                rows = batch.filter(stays).drop_columns(list(columns))
                if rows.num_rows:
                    files.add(target.values, rows)
            return tuple(files.finish())
        except BaseException:
            files.discard()
            raise


def _index(held: list[pa.RecordBatch]) -> KeyIndex:
    """Of keys that are held no more then but by the index."""
    keys = pa.Table.from_batches(held)
    held.clear()
    return KeyIndex(keys)


class _RowBits:
    """Some of a file's rows; takes one bit each."""

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


def _whole(table: Location, path: str, size_bytes: int, constants: Constants) -> tuple[Split, int]:
    """All of a file, and how many rows it has. InputError where it is not what the log says."""
    version = FileVersion(size_bytes)
    location = table.at(path).of(version)
    with (
        translate_read_errors("parquet", location),
        _of_logged_size(location, size_bytes, table),
        location.open_input() as stream,
    ):
        metadata = open_row_groups(stream).metadata
        groups, rows = metadata.num_row_groups, metadata.num_rows
        check_size(stream.size(), size_bytes, location, table)
    # Where a look is a request, the answers tell; elsewhere it has just been looked at.
    known = version if location.checks_version else None
    return Split(path, 0, groups, size_bytes, constants, known), rows


@contextmanager
def _of_logged_size(location: Location, size_bytes: int, table: Location) -> Iterator[None]:
    """Tell of a file's size, where it is not the log's, in the place of what that leads to."""
    try:
        yield
    except OSError:
        if (found := location.info().size) is not None:
            check_size(found, size_bytes, location, table)
        raise
