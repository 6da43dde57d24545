"""The part writer of a merge: it writes the rows to add, and the keys of the rows to delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.compute import arrow_compute as pc
from mrflight.compute.sql.predicate import Predicate
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.sinks.parts.key_bounds import (
    KeyBounds,
    KeyObserver,
    limit_to_partitions,
)
from mrflight.sinks.parts.open_files import OpenPartFiles
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.partition_values import PartitionValues, format_values
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage.part_name import PartId

_MAX_PARTITIONS = 1000
"""The maximum number of partition values that are noted for the keys to delete. With more of them
the files of all partitions are candidates."""


@dataclass(frozen=True)
class MergeWriter(PartWriter):
    """Writes the rows of a merge, of which there is one for each key.

    Only the keys are written of rows for which ``delete_when`` is true. They go to key files of
    their own.
    """

    rows: FilePartWriter
    keys: tuple[str, ...]
    order_by: str | None = None
    delete_when: Predicate | None = None
    unstored: tuple[str, ...] = ()
    """Further columns that a table gets only if it has them."""

    def select_columns(self, schema: pa.Schema) -> pa.Schema:
        """Return those columns of the rows that are written to the table.

        An existing table gets the columns of ``order_by``, ``delete_when`` and ``unstored`` only if
        it has them. A new table does not get columns that only ``delete_when`` names, and those of
        ``unstored``. Raises what `Predicate.check` raises.
        """
        named = () if self.delete_when is None else _columns(self.delete_when, schema)
        ordered = () if self.order_by is None else (self.order_by,)
        table = self.rows.schema
        if table.existing is not None:
            dropped = {*named, *ordered, *self.unstored} - set(table.existing.names)
        else:
            dropped = {*named} - {*table.partition_by, *ordered}
            dropped |= {*self.unstored} - {*table.partition_by}
        kept = [field for field in schema if field.name in self.keys or field.name not in dropped]
        return pa.schema(kept)

    def check(self, schema: pa.Schema) -> None:
        self.rows.check(self.select_columns(schema))

    def write(
        self,
        part: PartId,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        written = self.select_columns(schema)
        stored = self.rows.schema.to_stored(written)
        keys = pa.schema([stored.field(name) for name in self.keys])
        deletes = _DeleteWriter(self._key_files().open_files(part, keys), keys, self)
        try:
            rows = deletes.take_deletes(batches, written.names)
            parts = self.rows.write(part, written, rows, closer)
        except BaseException:
            deletes.files.discard()
            raise
        by = partition_keys(keys, self.rows.schema.partition_by)
        return [
            *(_with_bounds(file, deletes.added_keys.bounds(), by) for file in parts),
            *deletes.key_files,
        ]

    @property
    def max_closing_files(self) -> int:
        return self.rows.max_closing_files

    def with_memory_limit(self, memory_bytes: int) -> MergeWriter:
        return replace(self, rows=self.rows.with_memory_limit(memory_bytes))

    def _key_files(self) -> FilePartWriter:
        return replace(
            self.rows,
            schema=TableSchema(self.rows.schema.url, True, ()),
            file_format=structs.replace(self.rows.file_format, statistics_columns=None),
            before_suffix="keys.",
        )


class _DeleteWriter:
    """Takes the rows to delete out of one attempt's rows, and writes their keys to key files.

    It notes the bounds of the keys of both kinds of rows.
    """

    def __init__(self, files: OpenPartFiles, keys: pa.Schema, writer: MergeWriter) -> None:
        by = writer.rows.schema.partition_by
        self._by = partition_keys(keys, by)
        self._keys = keys
        self._writer = writer
        self._values: set[PartitionValues] = set()
        self._deleted_keys = KeyObserver(name for name in keys.names if name not in by)
        self.files = files
        self.added_keys = KeyObserver(name for name in keys.names if name not in by)
        self.key_files: list[PartFile] = []

    def take_deletes(
        self, batches: Iterable[pa.RecordBatch], written: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows to add; at the end the keys of all others are written."""
        for batch in batches:
            if self._writer.delete_when is not None and batch.num_rows:
                is_deleted = self._writer.delete_when.holds(batch)
                if is_deleted.true_count:
                    self._add(batch.filter(is_deleted))
                    batch = batch.filter(pc.invert(is_deleted))
            self.added_keys.observe(self._stored(batch))
            yield batch.select(list(written))
        self.key_files = [self._key_file(part) for part in self.files.finish()]

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._writer.rows.schema.cast(batch.select(self._keys.names), self._keys)

    def _add(self, batch: pa.RecordBatch) -> None:
        keys = self._stored(batch)
        self._deleted_keys.observe(keys)
        if self._by and len(self._values) <= _MAX_PARTITIONS:
            self._values |= _distinct_values(keys, self._by)
        self.files.add((), keys)

    def _key_file(self, part: PartFile) -> PartFile:
        bounds = self._deleted_keys.bounds()
        if self._by and len(self._values) <= _MAX_PARTITIONS:
            bounds = limit_to_partitions(bounds, self._values)
        return msgspec.structs.replace(part, keys=bounds, is_key_file=True)


def partition_keys(keys: pa.Schema, partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the key columns that are partition columns and have one text per value.

    Floats are left out, because zero has two texts.
    """
    return tuple(
        name
        for name in partition_by
        if name in keys.names and not pa.types.is_floating(keys.field(name).type)
    )


def _with_bounds(part: PartFile, bounds: KeyBounds, by: tuple[str, ...]) -> PartFile:
    if by:
        bounds = limit_to_partitions(bounds, [tuple(part.partition_values[name] for name in by)])
    return msgspec.structs.replace(part, keys=bounds)


def _distinct_values(rows: pa.RecordBatch, columns: tuple[str, ...]) -> set[PartitionValues]:
    """Return the distinct values of the columns, as texts."""
    keys = pa.Table.from_batches([rows.select(list(columns))])
    found = keys.group_by(list(columns), use_threads=False).aggregate([]).combine_chunks()
    texts = [format_values(found[name].combine_chunks()) for name in columns]
    return set(zip(*texts, strict=True))


@lru_cache(maxsize=16)
def _columns(predicate: Predicate, schema: pa.Schema) -> tuple[str, ...]:
    """Return the predicate's columns. All partitions of a job are alike, so this is cached."""
    return tuple(predicate.columns(schema))
