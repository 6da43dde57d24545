"""Small files that are read whole when they are opened, or before that, several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mrflight.storage.store import FileVersion, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

MAX_FILE_BYTES = 4 << 20
"""The size of a file that may be read whole. It takes as many requests as its first batch would."""

_MAX_AHEAD_BYTES = 16 << 20
"""How much may be read and not used yet, in one worker."""

_MAX_AHEAD_PER_REQUEST = 4
"""How many files may be read and not used yet, for each request at once."""


class WholeFiles(Store):
    """Another store, of which files are opened that are small. An open file is a buffer.

    It is checked that they have their versions, by one open and one read on a disk.
    """

    reads_check_version = True

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: tuple[str, FileVersion, bytes] | None = None
        """The last file, whose header and rows are read after one another."""

    def open_version(self, path: str, version: FileVersion) -> pa.NativeFile:
        import pyarrow as pa

        last = self._last
        if last is None or last[:2] != (path, version):
            last = self._last = path, version, self.read_version(path, version)
        return pa.BufferReader(last[2])

    def read_version(self, path: str, version: FileVersion) -> bytes:
        return self._store.read_version(path, version)

    @property
    def failure_hint(self) -> str:  # type: ignore[override]
        return self._store.failure_hint

    @property
    def options(self) -> Mapping[str, str]:
        return self._store.options

    def url(self, path: str) -> str:
        return self._store.url(path)

    def info(self, path: str) -> fs.FileInfo:
        return self._store.info(path)

    def list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        return self._store.list(folder, recursive=recursive)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._store.open_input(path)

    def create(self, path: str) -> pa.NativeFile:
        return self._store.create(path)

    def delete_file(self, path: str, below: str | None = None) -> None:
        self._store.delete_file(path, below)


@contextmanager
def files_ahead(store: Store, files: Mapping[str, FileVersion]) -> Iterator[Store]:
    """Yield a store of whole files, read ahead if ``store`` answers several requests at once.

    ``files`` are at most `MAX_FILE_BYTES` large, and in the order in which they will be opened.
    """
    if store.requests_at_once == 1:
        yield WholeFiles(store)
        return
    threads = ThreadPoolExecutor(store.requests_at_once, "read-ahead")
    try:
        yield _FilesAhead(store, files, threads)
    finally:
        threads.shutdown(cancel_futures=True)


class _FilesAhead(WholeFiles):
    """Whole files that are read in other threads, some before they are opened."""

    def __init__(
        self, store: Store, files: Mapping[str, FileVersion], threads: ThreadPoolExecutor
    ) -> None:
        super().__init__(store)
        self._files = list(files.items())
        self._numbers = {path: number for number, path in enumerate(files)}
        self._threads = threads
        self._reads: dict[int, Future[bytes]] = {}
        """Those of files that are to be used, by the number of the file."""
        self._bytes = 0
        """The size of these files."""
        self._next = 0
        """The next file to read."""

    def read_version(self, path: str, version: FileVersion) -> bytes:
        """Return the content of a file, and drop that of the files before it."""
        number = self._numbers.get(path)
        if number is not None:
            self._advance(number)
        if number in self._reads:
            return self._reads[number].result()
        return self._store.read_version(path, version)  # used before: this read is for a message

    def _advance(self, number: int) -> None:
        """Drop the files before this one, and begin to read files after it."""
        for used in [each for each in self._reads if each < number]:
            self._reads.pop(used).cancel()
            self._bytes -= self._files[used][1].size_bytes
        self._next = max(self._next, number)
        most = self._store.requests_at_once * _MAX_AHEAD_PER_REQUEST
        while self._next < len(self._files) and len(self._reads) < most:
            path, version = self._files[self._next]
            if self._reads and self._bytes + version.size_bytes > _MAX_AHEAD_BYTES:
                return
            self._reads[self._next] = self._threads.submit(self._store.read_version, path, version)
            self._bytes += version.size_bytes
            self._next += 1
