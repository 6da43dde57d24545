"""The interface of every store of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


class FileVersion(msgspec.Struct, frozen=True):
    """Tells a changed file from an unchanged one without reading it."""

    size_bytes: int
    mtime_ns: int | None = None
    """The time of the last write; None if it is unknown or says nothing."""

    def is_of(self, info: fs.FileInfo) -> bool:
        """Return whether a file has this version."""
        is_of_time = self.mtime_ns is None or self.mtime_ns == info.mtime_ns
        return bool(is_of_time and self.size_bytes == info.size)


class ChangedFileError(OSError):
    """A file does not have the version that was asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url}: it has changed since it was listed")
        self.url = url

    def __reduce__(self) -> tuple[type[ChangedFileError], tuple[str]]:
        return type(self), (self.url,)


class Store(ABC):
    """Files by absolute paths, ``/a/b``. A folder exists if something is below it.

    A store is small, hashable and picklable; the process that uses a file opens it.
    Methods raise OSError: FileNotFoundError for a missing file and, if the store is not a disk,
    PermissionError for what is forbidden and `failures.StoreCallError` for the rest. Reads of an
    open file raise the same.
    """

    failure_hint = "check the store"
    """Advice to the user if the store fails; a clause of a message, without a full stop."""

    is_disk = False
    """Whether the store is a disk of this machine, with real folders, locks and renames."""

    names_host = False
    """Whether its URLs name the host that is called, as those of a bucket do not."""

    open_file_bytes = 0
    """About how much a file that is being written buffers."""

    requests_at_once = 1
    """How many reads of files to have in flight side by side; 1 if there is no latency to hide."""

    slow_close = False
    """Whether closing a written file waits for the store, rather than for this machine."""

    has_folders = True
    """Whether a file and a folder cannot have the same name."""

    reads_check_version = False
    """Whether every read checks the version of the file, so that no other check is needed."""

    @property
    def identity(self) -> str:
        """A string that is equal for stores with the same files, however their URLs are written.

        The `options` by which a store is reached are not part of it.
        """
        return self.url("/")

    def final_name(self, name: str) -> str:
        """Return the name, without folders, that a file has once it is written.

        Some writers, and some clients of stores, use a temporary name until then; it stays if they
        are killed.
        """
        return name

    def lock_name(self, path: str) -> str | None:
        """Return the name of the commit lock of a table at this path; None if none is needed.

        A store needs one if two writers that create the same file may both succeed, so that one
        file is lost.
        """
        return None

    def await_answer(self, path: str) -> None:
        """Wait for the store in a call that lets other threads run.

        Some calls of some clients do not. If the store does not answer, they could not be
        interrupted, not even by Ctrl-C.
        """
        return

    @property
    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """The job's ``[storage]``. It may hold secrets, so no repr shows it."""

    @abstractmethod
    def url(self, path: str) -> str:
        """Return the URL of a file or folder, for messages and for other programs."""

    @abstractmethod
    def info(self, path: str) -> fs.FileInfo:
        """Return the type (`FileType.NotFound` if nothing is there), size and modification time."""

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder."""
        from pyarrow import fs

        return bool(self.info(path).type == fs.FileType.Directory)

    @abstractmethod
    def list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        """List a folder, or everything below it; the list is empty if there is no folder."""

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a small file."""
        with self.open_input(path) as file:
            return file.read()

    @abstractmethod
    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset."""

    def open_version(self, path: str, version: FileVersion) -> pa.NativeFile:
        """Open like `open_input`; with `reads_check_version`, reads of another version fail."""
        return self.open_input(path)

    def read_version(self, path: str, version: FileVersion) -> bytes:
        """Return the content of a small file; raise ChangedFileError for another version."""
        if not self.reads_check_version:
            self._check_version(path, version)
        with self.open_version(path, version) as file:
            content: bytes = file.read(version.size_bytes)
        if not self.reads_check_version:
            self._check_version(path, version)
        return content

    def _check_version(self, path: str, version: FileVersion) -> None:
        if not version.is_of(self.info(path)):
            raise ChangedFileError(self.url(path))

    def open_mapped(self, path: str) -> pa.NativeFile:
        """Open like `open_input`; on a disk, buffers are pages of the file instead of copies."""
        return self.open_input(path)

    @abstractmethod
    def create(self, path: str) -> pa.NativeFile:
        """Open a file for writing, with the folders above it; the caller closes it."""

    @abstractmethod
    def delete_file(self, path: str, below: str | None = None) -> None:
        """Remove a file. It is no error if there is none.

        A store with links follows none between the file and a folder ``below`` which it lies.
        """

    def delete_empty_folder(self, path: str, below: str | None = None) -> None:
        """Remove a folder if it is empty. It is no error if it is not, or does not exist.

        ``below`` is as for `delete_file`.
        """
        return

    def sync(self, path: str) -> None:
        """Make the content of a file, or the entries of a folder, survive a power loss.

        A store whose files are durable once they are closed has nothing to do.
        """
        return

    def sync_names(self, paths: Iterable[str]) -> None:
        """Make the names of files, and those of all folders above them, survive a power loss.

        Their content is synced before, so that no file is found empty.
        """
        return


class PutIfAbsentStore(Store):
    """A store that can create a file only if it does not exist."""

    puts_log_entries = False
    """True if it is cheaper to put a log entry of an append ourselves than through deltalake."""

    @property
    def why_no_put_if_absent(self) -> str | None:
        """The reason why `put_if_absent` does not work, e.g. a missing client; None if it works."""
        return None

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a small file in one step; raise FileExistsError if it exists.

        Of several concurrent writers one succeeds. The file appears as a whole or not at all.
        Another OSError may be raised after the file has been created.
        """
