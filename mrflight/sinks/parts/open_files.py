"""The part files that one reduce attempt has open, one for each partition value.

Rows are buffered until they make a chunk (a row group) of their value's file. Two things are
bounded. The buffered bytes are: past the limit, the largest buffers are encoded early. The open
files are: past the limit, the file that was written to longest ago is ended, and later rows of
its value go to a further file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from mrflight.errors import JobFailedError, OutputError
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.dictionaries import concat_batches
from mrflight.sinks.parts.encoders import ChunkLimit, Encoder
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.partition_values import PartitionValues
from mrflight.sinks.parts.preflight import PERMANENT_ERRNOS, advice
from mrflight.storage import Location
from mrflight.storage.deletion import delete_created


class PartLimits(msgspec.Struct, frozen=True):
    """The limits on files and bytes of one attempt."""

    max_open_files: int = 100
    max_buffered_bytes: int = 128 << 20
    max_closing_files: int = 4
    """The number of files closed in the background, on stores where closing takes time."""


DEFAULT_LIMITS = PartLimits()


class OpenPartFile:
    """One part file, written at its final name and ended by `finish` or `discard`.

    Raises JobFailedError if the store fails, as with a full disk. Raises OutputError for rows that
    the format cannot hold, and if the store would refuse another attempt as well.
    """

    def __init__(
        self, table: Location, path: str, file_format: FileFormat, schema: pa.Schema
    ) -> None:
        """``path`` is relative to ``table``. The file is created by the first `write`.

        ``schema`` is what its rows are stored with, including the ``partition_by`` columns.
        """
        self.path = path
        self._schema = schema
        self._location = table.child(path)
        self._format = file_format
        self._stream: pa.NativeFile | None = None
        self._encoder: Encoder | None = None
        self._is_created = False
        self._closing: Future[None] | None = None
        self._rows = 0

    def accepts(self, rows: pa.Table) -> bool:
        """Return whether ``rows`` may follow in this file; if not, they need another file."""
        return self._encoder is None or self._encoder.accepts(rows)

    def write(self, rows: pa.Table) -> None:
        """Encode ``rows`` as one chunk."""
        with translate_write_errors(self._location):
            if self._encoder is None:
                self._stream = self._location.create()
                self._is_created = True
                self._encoder = self._format.open(self._stream, rows)
            self._encoder.write(rows)
        self._rows += rows.num_rows

    def finish(self, partition_values: dict[str, str | None], closer: AsyncCloser) -> PartFile:
        """End a file that has rows. It is there once ``closer`` has closed it."""
        assert self._encoder is not None
        assert self._stream is not None
        with translate_write_errors(self._location):
            stats = self._encoder.close()
            size_bytes = self._stream.tell()
        self._encoder = None  # thousands of ended files may be kept for `discard`
        self._closing = closer.submit(self._close)
        return PartFile(
            path=self.path,
            rows=self._rows,
            size_bytes=size_bytes,
            partition_values=partition_values,
            stats=stats,
            schema=self._schema,
        )

    def _close(self) -> None:
        assert self._stream is not None
        with translate_write_errors(self._location):
            self._stream.close()
            # Without this, a Delta log or manifest that is already on the disk could name empty
            # files after a power loss, and csv readers would not notice. It takes 1 to 3 ms per
            # file on a virtual disk (ext4): 20 ms of the 300 ms in which a job reduces 2 million
            # rows to 40 files.
            self._location.sync()
        self._stream = None

    def discard(self) -> None:
        """Remove the file, whatever state it is in; never raises."""
        if self._closing is not None:
            wait([self._closing])  # or closing would create the file again after its removal
        if self._encoder is not None:
            with suppress(Exception):  # the file is incomplete, so its errors do not matter
                self._encoder.close()  # or pyarrow closes it later, into a closed stream
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
        if self._is_created:
            with suppress(OSError):
                delete_created(self._location)


@contextmanager
def translate_write_errors(location: Location) -> Iterator[None]:
    """Raise JobFailedError if the store fails; OutputError for what it will refuse again."""
    try:
        yield
    except OSError as error:
        # What a store's server refuses does not always have an errno of this system.
        if error.errno in PERMANENT_ERRNOS or isinstance(error, PermissionError):
            raise OutputError(
                f"{location.url} cannot be written: {error}; {advice(error)}"
            ) from error
        raise JobFailedError(f"{location.url} cannot be written: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise OutputError(
            f"{location.url} cannot hold the rows: {error}; change them in the map, or write "
            "another format"
        ) from error


@dataclass
class _Buffer:
    """Rows of one partition value that are not encoded yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    """The number of files that were opened for the value."""

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes

    def take(self) -> list[pa.RecordBatch]:
        batches, self.batches, self.rows, self.size_bytes = self.batches, [], 0, 0
        return batches


class OpenPartFiles:
    """The open files by partition value, ended by `finish` or `discard`."""

    def __init__(
        self,
        columns: tuple[str, ...],
        open_file: Callable[[PartitionValues, int], OpenPartFile],
        chunk: ChunkLimit,
        limits: PartLimits,
        closer: AsyncCloser,
    ) -> None:
        """``open_file`` makes the n-th file of a value, without writing anything yet."""
        self._columns = columns
        self._open_file = open_file
        self._chunk = chunk
        self._limits = limits
        self._closer = closer
        self._buffers: dict[PartitionValues, _Buffer] = {}
        self._buffered_bytes = 0
        self._open: OrderedDict[PartitionValues, OpenPartFile] = OrderedDict()
        """The file that was written last comes last."""
        self._started: list[OpenPartFile] = []
        self._done: list[PartFile] = []

    def add(self, values: PartitionValues, batch: pa.RecordBatch) -> None:
        """Add rows of one partition value."""
        buffer = self._buffers.setdefault(values, _Buffer())
        before = buffer.size_bytes
        buffer.add(batch)
        self._buffered_bytes += buffer.size_bytes - before
        if buffer.rows >= self._chunk.rows or buffer.size_bytes >= self._chunk.size_bytes:
            self._encode(values)
        if self._buffered_bytes > self._limits.max_buffered_bytes:
            self._encode_largest()

    def add_empty(self, values: PartitionValues, batch: pa.RecordBatch) -> None:
        """Add a file without rows; ``batch`` has its columns."""
        self.add(values, batch)
        self._encode(values)

    def finish(self) -> list[PartFile]:
        """Write the buffered rows and end every file. All are there once ``closer`` has ended."""
        for values, buffer in self._buffers.items():
            if buffer.rows:
                self._encode(values)
            if values in self._open:
                self._end(values)
        return self._done

    def discard(self) -> None:
        """Remove every file that was opened; never raises."""
        for file in self._started:
            file.discard()

    def _encode(self, values: PartitionValues) -> None:
        buffer = self._buffers[values]
        self._buffered_bytes -= buffer.size_bytes
        rows = concat_batches(buffer.take())
        file = self._open.get(values)
        if file is not None and not file.accepts(rows):
            self._end(values)
            file = None
        if file is None:
            file = self._start(values, buffer)
        self._open.move_to_end(values)
        file.write(rows)

    def _start(self, values: PartitionValues, buffer: _Buffer) -> OpenPartFile:
        if len(self._open) >= self._limits.max_open_files:
            self._end(next(iter(self._open)))
        file = self._open[values] = self._open_file(values, buffer.files)
        buffer.files += 1
        self._started.append(file)
        return file

    def _end(self, values: PartitionValues) -> None:
        texts = dict(zip(self._columns, values, strict=True))
        self._done.append(self._open.pop(values).finish(texts, self._closer))

    def _encode_largest(self) -> None:
        """Encode the largest buffers until half of the limit is free, so that sorting pays off."""
        by_size = sorted(self._buffers, key=lambda v: self._buffers[v].size_bytes, reverse=True)
        for values in by_size:
            if self._buffered_bytes <= self._limits.max_buffered_bytes // 2:
                return
            self._encode(values)
