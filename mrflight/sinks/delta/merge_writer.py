"""The part writer of a merge: rows that come into the table, and keys of those that go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.compute.sql.predicate import Predicate
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.sinks.parts.key_bounds import (
    KeyBounds,
    KeyObserver,
    limit_to_partitions,
)
from mrflight.sinks.parts.open_files import OpenPartFiles
from mrflight.sinks.parts.part_name import PartId
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.partition_values import PartitionValues, format_values
from mrflight.sinks.parts.stored_schema import TableSchema

_MAX_PARTITIONS = 1000
"""Of the keys to go, that are told apart: with more of them every file is looked at."""


@dataclass(frozen=True)
class MergeWriter(PartWriter):
    """Writes the rows of a merge, of which there is one for each key.

    Those of which ``delete_when`` holds go to key files, beside the others and with their keys
    alone.
    """

    rows: FilePartWriter
    keys: tuple[str, ...]
    order_by: str | None = None
    delete_when: Predicate | None = None

    def written(self, schema: pa.Schema) -> pa.Schema:
        """Of the columns of rows those that come into the table.

        An existing table gets those that it has of what ``order_by`` and ``delete_when`` name, a
        new one no column that only ``delete_when`` names. Raises what `Predicate.check` does.
        """
        named = () if self.delete_when is None else _columns(self.delete_when, schema)
        ordered = () if self.order_by is None else (self.order_by,)
        table = self.rows.schema
        if table.existing is not None:
            left_out = {*named, *ordered} - set(table.existing.names)
        else:
            left_out = {*named} - {*table.partition_by, *ordered}
        kept = [field for field in schema if field.name in self.keys or field.name not in left_out]
        return pa.schema(kept)

    def write(
        self,
        part: PartId,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        written = self.written(schema)
        stored = self.rows.schema.to_stored(written)
        keys = pa.schema([stored.field(name) for name in self.keys])
        beside = _Keys(self._key_files().open_files(part, keys), keys, stored, self)
        try:
            rest = beside.taken_from(batches, written.names)
            parts = self.rows.write(part, written, rest, closer)
        except BaseException:
            beside.files.discard()
            raise
        by = partition_keys(keys, self.rows.schema.partition_by)
        return [
            *(_with_bounds(file, beside.coming.bounds(), by) for file in parts),
            *beside.done,
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


class _Keys:
    """What is noted of the keys of one attempt's rows as they are written."""

    def __init__(
        self, files: OpenPartFiles, keys: pa.Schema, stored: pa.Schema, writer: MergeWriter
    ) -> None:
        by = writer.rows.schema.partition_by
        self._by = partition_keys(keys, by)
        self._keys = keys
        self._writer = writer
        self._values: set[PartitionValues] = set()
        self._going = KeyObserver(name for name in keys.names if name not in by)
        self.files = files
        self.coming = KeyObserver(name for name in keys.names if name not in by)
        self.done: list[PartFile] = []

    def taken_from(
        self, batches: Iterable[pa.RecordBatch], written: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows that come into the table; the keys of the others are written by their end."""
        import pyarrow.compute as pc

        for batch in batches:
            if self._writer.delete_when is not None and batch.num_rows:
                goes = self._writer.delete_when.holds(batch)
                if goes.true_count:
                    self._add(batch.filter(goes))
                    batch = batch.filter(pc.invert(goes))
            self.coming.observe(self._stored(batch))
            yield batch.select(list(written))
        self.done = [self._key_file(part) for part in self.files.finish()]

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._writer.rows.schema.cast(batch.select(self._keys.names), self._keys)

    def _add(self, batch: pa.RecordBatch) -> None:
        keys = self._stored(batch)
        self._going.observe(keys)
        if self._by and len(self._values) <= _MAX_PARTITIONS:
            self._values |= _values_in(keys, self._by)
        self.files.add((), keys)

    def _key_file(self, part: PartFile) -> PartFile:
        bounds = self._going.bounds()
        if self._by and len(self._values) <= _MAX_PARTITIONS:
            bounds = limit_to_partitions(bounds, self._values)
        return msgspec.structs.replace(part, keys=bounds, is_key_file=True)


def partition_keys(keys: pa.Schema, partition_by: Sequence[str]) -> tuple[str, ...]:
    """The key columns that a table is partitioned by, and by whose texts keys can be told apart.

    Not those of floats: a zero has two.
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


def _values_in(rows: pa.RecordBatch, columns: tuple[str, ...]) -> set[PartitionValues]:
    """The different values of some columns, as their texts."""
    keys = pa.Table.from_batches([rows.select(list(columns))])
    found = keys.group_by(list(columns), use_threads=False).aggregate([]).combine_chunks()
    texts = [format_values(found[name].combine_chunks()) for name in columns]
    return set(zip(*texts, strict=True))


@lru_cache(maxsize=16)
def _columns(predicate: Predicate, schema: pa.Schema) -> tuple[str, ...]:
    """Once in a worker, as all partitions of a job are alike."""
    return tuple(predicate.columns(schema))
