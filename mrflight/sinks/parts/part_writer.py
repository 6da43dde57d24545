"""The part writer of every format: rows into the files of one table's folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from msgspec import structs

from mrflight.errors import OutputError
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.sinks.parts.encoder import ChunkLimit
from mrflight.sinks.parts.encoding import FileFormat
from mrflight.sinks.parts.part_file import OpenPartFile
from mrflight.sinks.parts.part_files import DEFAULT_LIMITS, PartFiles, PartLimits
from mrflight.sinks.parts.part_name import part_name
from mrflight.sinks.parts.partition_folder import folder
from mrflight.sinks.parts.partition_split import Values, split
from mrflight.sinks.parts.stored_schema import TableSchema, blame_column
from mrflight.storage import Location
from mrflight.storage.delta import why_part_unreachable

MIN_OPEN_FILES = 4
"""However little memory there is: with fewer a partition value gets ever more files."""


@dataclass(frozen=True)
class FilePartWriter(PartWriter):
    """Writes part files below ``table``; a few hundred bytes when pickled."""

    table: Location
    job_id: str
    schema: TableSchema
    file_format: FileFormat
    limits: PartLimits = DEFAULT_LIMITS
    run: str = ""
    """See `part_name.hash_run_id`."""
    before_suffix: str = ""

    def write(
        self,
        partition: int,
        attempt: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        share: int | None = None,
        closer: AsyncCloser | None = None,
    ) -> list[PartFile]:
        if closer is None:
            with AsyncCloser(self.max_closing_files) as own:
                return self._write(partition, attempt, schema, batches, share, own, is_last=True)
        return self._write(partition, attempt, schema, batches, share, closer, is_last=False)

    @property
    def max_closing_files(self) -> int:
        return self.limits.max_closing_files if self.table.store.slow_close else 0

    def _write(
        self,
        partition: int,
        attempt: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        share: int | None,
        closer: AsyncCloser,
        *,
        is_last: bool,
    ) -> list[PartFile]:
        stored = self.schema.stored(schema)
        columns = self.schema.partition_by
        self._try_encoding(stored)
        files = self.begin(partition, attempt, stored, share, closer)
        seen = schema
        try:
            for batch in batches:
                if batch.num_rows:
                    if batch.schema is not seen and batch.schema != seen:
                        self.schema.check_same(batch.schema, stored)
                        seen = batch.schema
                    rows = self.schema.rows(
                        batch, stored, keeps_dictionaries=self.file_format.has_dictionaries
                    )
                    for values, piece in split(rows, columns, self.schema.is_delta):
                        files.add(values, piece)
            parts = files.finish()
            if is_last:
                closer.end()
            return parts
        except BaseException:  # an interrupt as well leaves nothing behind
            files.discard()
            raise

    def begin(
        self,
        partition: int,
        attempt: int,
        stored: pa.Schema,
        share: int | None = None,
        closer: AsyncCloser | None = None,
    ) -> PartFiles:
        """An attempt's files, none of them made yet. Whoever begins them ends them.

        They take rows of ``stored`` without its ``partition_by`` columns. Without ``closer``
        each is closed as it is ended.
        """
        columns = self.schema.partition_by

        def open_file(values: Values, number: int) -> OpenPartFile:
            suffix = f"{self.before_suffix}{self.file_format.suffix}"
            name = part_name(partition, share, attempt, self.job_id, number, suffix, self.run)
            path = f"{folder(columns, values)}/{name}" if columns else name
            if self.schema.is_delta and (why := why_part_unreachable(self.table, path)) is not None:
                raise OutputError(
                    f"partition_by: the files of a value would be in {folder(columns, values)}, "
                    f"and {why}; replace it in the map, or take its column out of partition_by"
                )
            return OpenPartFile(self.table, path, self.file_format, stored)

        return PartFiles(columns, open_file, self._chunk(), self.limits, closer or AsyncCloser(0))

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
            most = max(MIN_OPEN_FILES, memory_bytes // held)
            limits = structs.replace(
                limits,
                max_open_files=min(limits.max_open_files, most),
                max_closing_files=min(limits.max_closing_files, memory_bytes // (2 * held)),
            )
        return replace(self, limits=limits)

    def _chunk(self) -> ChunkLimit:
        """What is encoded at once: half of what may wait, as the other half is being encoded."""
        chunk = self.file_format.chunk
        return structs.replace(
            chunk, size_bytes=min(chunk.size_bytes, self.limits.max_buffered_bytes // 2)
        )


@lru_cache(maxsize=64)
def _try_encoding(url: str, file_format: FileFormat, written: pa.Schema) -> None:
    """Encode a row of nulls; OutputError where the format cannot hold a column's type.

    Once in a worker, as all partitions of a job are alike.
    """

    def encode(row: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([row])
        encoder = file_format.open(pa.BufferOutputStream(), table)
        encoder.write(table)
        encoder.close()

    blame_column(url, file_format.suffix, written, encode)
