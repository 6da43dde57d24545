"""One part file being written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress

import pyarrow as pa

from mrflight.errors import JobFailedError, OutputError
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.encoder import Encoder
from mrflight.sinks.parts.encoding import FileFormat
from mrflight.sinks.parts.preflight import ALWAYS_MET, what_to_do
from mrflight.storage import Location


class OpenPartFile:
    """A file at its final name; `finish` or `discard` ends it.

    Raises JobFailedError where the store fails (a full disk), OutputError for rows that the
    format does not take, and where the store would refuse another attempt as well.
    """

    def __init__(
        self, table: Location, path: str, file_format: FileFormat, schema: pa.Schema
    ) -> None:
        """``path`` is relative to ``table``; the file is made by the first `write`.

        ``schema`` is of its rows as they are stored, with the ``partition_by`` columns.
        """
        self.path = path
        self._schema = schema
        self._location = table.child(path)
        self._format = file_format
        self._stream: pa.NativeFile | None = None
        self._encoder: Encoder | None = None
        self._is_made = False
        self._closing: Future[None] | None = None
        self._rows = 0

    def takes(self, rows: pa.Table) -> bool:
        """Whether ``rows`` may go on in this file; if not, they need another one."""
        return self._encoder is None or self._encoder.takes(rows)

    def write(self, rows: pa.Table) -> None:
        """Encode ``rows`` as one chunk."""
        with _storing(self._location):
            if self._encoder is None:
                self._stream = self._location.create()
                self._is_made = True
                self._encoder = self._format.open(self._stream, rows)
            self._encoder.write(rows)
        self._rows += rows.num_rows

    def finish(self, partition_values: dict[str, str | None], closer: AsyncCloser) -> PartFile:
        """End the file, which has rows; it is there once ``closer`` have ended."""
        assert self._encoder is not None
        assert self._stream is not None
        with _storing(self._location):
            stats = self._encoder.close()
            size_bytes = self._stream.tell()
        self._encoder = None  # thousands of ended files may be kept for `discard`
        self._closing = closer.begin(self._close)
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
        with _storing(self._location):
            self._stream.close()
            # Or a list of files that is on the disk, Delta's log or ours, could name empty ones
            # after a power loss, of which csv readers say nothing. 1 to 3 ms each on a virtual
            # disk (ext4): 20 ms of a job's 300 ms of reducing 2 million rows to 40 files.
            self._location.sync()
        self._stream = None

    def discard(self) -> None:
        """Remove the file, whatever state it is in; never raises."""
        if self._closing is not None:
            wait([self._closing])  # or it would be there again after it was removed
        if self._encoder is not None:
            with suppress(Exception):  # half a file; whatever its end trips over does not matter
                self._encoder.close()  # or pyarrow would, later, into a closed stream
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
        if self._is_made:
            with suppress(OSError):
                self._location.delete_file()


@contextmanager
def _storing(location: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # What a store's server refuses has no number of this system's.
        if error.errno in ALWAYS_MET or isinstance(error, PermissionError):
            raise OutputError(
                f"{location.url} cannot be written: {error}; {what_to_do(error)}"
            ) from error
        raise JobFailedError(f"{location.url} cannot be written: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise OutputError(
            f"{location.url} cannot hold the rows: {error}; change them in the map, or write "
            "another format"
        ) from error
