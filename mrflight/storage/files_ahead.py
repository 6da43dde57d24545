"""A store whose small files are fetched, several side by side, before they are opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mrflight.storage.failures import StoreCallError
from mrflight.storage.store import FileVersion, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

MAX_FILE_BYTES = 4 << 20
"""The size of a file that may be fetched as a whole. It takes as many requests as its first batch
would."""

_MAX_AHEAD_BYTES = 16 << 20
"""How much may be fetched and not used yet, in one worker."""

_MAX_AHEAD_FILES_PER_REQUEST = 4


@contextmanager
def files_ahead(store: Store, files: Mapping[str, FileVersion]) -> Iterator[Store]:
    """Yield the store, with these files fetched ahead if it answers several requests at once.

    ``files`` are at most `MAX_FILE_BYTES` large, and in the order in which they will be opened.
    """
    if store.requests_at_once == 1 or len(files) < 2:
        yield store
        return
    threads = ThreadPoolExecutor(store.requests_at_once, "fetch")
    try:
        yield _FilesAhead(store, files, threads)
    finally:
        threads.shutdown(cancel_futures=True)


class _FilesAhead(Store):
    """Fetches whole files in other threads. An open file is a buffer."""

    reads_check_version = True

    def __init__(
        self, store: Store, files: Mapping[str, FileVersion], threads: ThreadPoolExecutor
    ) -> None:
        self._store = store
        self._files = list(files.items())
        self._numbers = {path: number for number, path in enumerate(files)}
        self._threads = threads
        self._fetches: dict[int, Future[bytes]] = {}
        """Those of the files that are to be used, by their numbers."""
        self._bytes = 0
        """The size of these files."""
        self._next = 0
        """The next file to fetch."""

    def open_version(self, path: str, version: FileVersion) -> pa.NativeFile:
        """Open the fetched file; the files before it are dropped."""
        import pyarrow as pa

        number = self._numbers.get(path)
        if number is not None:
            self._use(number)
        if number not in self._fetches:  # it was used before: this read is for a message
            return self._store.open_version(path, version)
        return pa.BufferReader(self._fetches[number].result())

    def _use(self, number: int) -> None:
        """Drop the files before this one, and begin to fetch files after it."""
        for used in [each for each in self._fetches if each < number]:
            self._fetches.pop(used).cancel()
            self._bytes -= self._files[used][1].size_bytes
        self._next = max(self._next, number)
        most = self._store.requests_at_once * _MAX_AHEAD_FILES_PER_REQUEST
        while self._next < len(self._files) and len(self._fetches) < most:
            path, version = self._files[self._next]
            if self._fetches and self._bytes + version.size_bytes > _MAX_AHEAD_BYTES:
                return
            self._fetches[self._next] = self._threads.submit(self._fetch, path, version)
            self._bytes += version.size_bytes
            self._next += 1

    def _fetch(self, path: str, version: FileVersion) -> bytes:
        """Return the content of a file; raise StoreCallError if it has another version."""
        if not self._store.reads_check_version:
            self._check_version(path, version)
        with self._store.open_version(path, version) as file:
            content: bytes = file.read(version.size_bytes)
        if not self._store.reads_check_version:
            self._check_version(path, version)
        return content

    def _check_version(self, path: str, version: FileVersion) -> None:
        if not version.is_of(self._store.info(path)):
            raise StoreCallError(
                self.url(path), "it has changed since it was listed", is_transient=False
            )

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

    def delete_file(self, path: str) -> None:
        self._store.delete_file(path)
