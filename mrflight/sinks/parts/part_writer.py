"""The part writer of every format: it writes rows to files below one table's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from msgspec import structs

from mrflight.compute.schemas import empty_batch
from mrflight.errors import OutputError
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.sinks.parts.encoders import ChunkLimit
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.open_files import (
    DEFAULT_LIMITS,
    OpenPartFile,
    OpenPartFiles,
    PartLimits,
)
from mrflight.sinks.parts.partition_values import (
    PartitionValues,
    partition_path,
    split_by_values,
)
from mrflight.sinks.parts.stored_schema import TableSchema, raise_for_column
from mrflight.sinks.parts.stored_type import is_unusual
from mrflight.storage import Location
from mrflight.storage.delta import why_part_unreachable
from mrflight.storage.part_name import PartId, part_name

MIN_OPEN_FILES = 4
"""The least number of open files, however little memory there is. With fewer, a partition value
gets ever more files."""


@dataclass(frozen=True)
class FilePartWriter(PartWriter):
    """Writes part files below ``table``. It has a few hundred bytes when pickled."""

    table: Location
    job_id: str
    schema: TableSchema
    file_format: FileFormat
    limits: PartLimits = DEFAULT_LIMITS
    run_hash: str = ""
    """See `part_name.hash_run_id`."""
    before_suffix: str = ""

    def check(self, schema: pa.Schema) -> None:
        stored = self.schema.to_stored(schema)
        if any(is_unusual(field.type) for field in stored):
            self._try_encoding(stored)

    def write(
        self,
        part: PartId,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        if closer is None:
            with AsyncCloser(self.max_closing_files) as own:
                return self._write(part, schema, batches, own, is_last=True)
        return self._write(part, schema, batches, closer, is_last=False)

    @property
    def max_closing_files(self) -> int:
        return self.limits.max_closing_files if self.table.store.slow_close else 0

    def _write(
        self,
        part: PartId,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        closer: AsyncCloser,
        *,
        is_last: bool,
    ) -> list[PartFile]:
        stored = self.schema.to_stored(schema)
        self._try_encoding(stored)
        files = self.open_files(part, stored, closer)
        try:
            for rows in self._cast(batches, schema, stored):
                for values, piece in split_by_values(
                    rows,
                    self.schema.partition_by,
                    self.schema.is_delta,
                    keeps_columns=self.file_format.keeps_partition_columns,
                ):
                    files.add(values, piece)
            parts = files.finish()
            if is_last:
                closer.wait()
            return parts
        except BaseException:  # an interrupt as well leaves nothing behind
            files.discard()
            raise

    def write_empty(self, part: PartId, schema: pa.Schema) -> list[PartFile]:
        """Write a file without rows, from which readers of a folder know its columns.

        It lies in the folder of nulls if the output is partitioned.
        """
        stored = self.schema.to_stored(schema)
        columns = self.schema.partition_by
        files = self.open_files(part, stored)
        try:
            rows = empty_batch(pa.schema([each for each in stored if each.name not in columns]))
            files.add_empty((None,) * len(columns), rows)
            return files.finish()
        except BaseException:  # an interrupt as well leaves nothing behind
            files.discard()
            raise

    def _cast(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, stored: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches that have rows, with the columns and types of ``stored``."""
        keeps = self.file_format.has_dictionaries
        seen = schema
        for batch in batches:
            if batch.num_rows:
                if batch.schema is not seen and batch.schema != seen:
                    self.schema.check_same(batch.schema, stored)
                    seen = batch.schema
                yield self.schema.cast(batch, stored, keeps_dictionaries=keeps)

    def open_files(
        self, part: PartId, stored: pa.Schema, closer: AsyncCloser | None = None
    ) -> OpenPartFiles:
        """Return an attempt's files, none of them created yet. The caller has to end them.

        They take rows of ``stored`` without its ``partition_by`` columns. Without ``closer`` each
        file is closed as soon as it is ended.
        """
        columns = self.schema.partition_by

        def open_file(values: PartitionValues, number: int) -> OpenPartFile:
            suffix = f"{self.before_suffix}{self.file_format.suffix}"
            name = part_name(part, self.job_id, number, suffix, self.run_hash)
            folder = partition_path(columns, values)
            path = f"{folder}/{name}" if columns else name
            if self.schema.is_delta and (why := why_part_unreachable(self.table, path)) is not None:
                raise OutputError(
                    f"partition_by: the files of a value would be in {folder}, and {why}; replace "
                    "it in the map, or take its column out of partition_by"
                )
            return OpenPartFile(self.table, path, self.file_format, stored)

        return OpenPartFiles(
            columns, open_file, self._chunk(), self.limits, closer or AsyncCloser(0)
        )

    def _try_encoding(self, stored: pa.Schema) -> None:
        columns = self.schema.partition_by
        without = pa.schema([field for field in stored if field.name not in columns])
        _try_encoding(self.table.url, self.file_format, without)

    def with_memory_limit(self, memory_bytes: int) -> FilePartWriter:
        """See `PartWriter.with_memory_limit`.

        On some stores an open file holds rows back as well. Open files may hold as many bytes
        again, and files that are being closed half of that.
        """
        limits = structs.replace(self.limits, max_buffered_bytes=memory_bytes)
        if held := self.table.store.open_file_bytes:
            max_files = max(MIN_OPEN_FILES, memory_bytes // held)
            limits = structs.replace(
                limits,
                max_open_files=min(limits.max_open_files, max_files),
                max_closing_files=min(limits.max_closing_files, memory_bytes // (2 * held)),
            )
        return replace(self, limits=limits)

    def _chunk(self) -> ChunkLimit:
        """Return the chunk limit: at most half of the buffer, as the other half is encoded."""
        chunk = self.file_format.chunk
        return structs.replace(
            chunk, size_bytes=min(chunk.size_bytes, self.limits.max_buffered_bytes // 2)
        )


@lru_cache(maxsize=64)
def _try_encoding(url: str, file_format: FileFormat, written: pa.Schema) -> None:
    """Encode a row of nulls; raise OutputError if the format cannot hold a column's type.

    This is done once in a worker, as all partitions of a job have the same schema.
    """

    def encode(row: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([row])
        encoder = file_format.open(pa.BufferOutputStream(), table)
        encoder.write(table)
        encoder.close()

    raise_for_column(url, file_format.suffix, written, encode)
