"""What every store of files can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


class FileVersion(msgspec.Struct, frozen=True):
    """What tells a file's content from an earlier one without reading it."""

    size_bytes: int
    mtime_ns: int | None = None
    """When it was last written to; None where that says nothing, or is not known."""


class Store(ABC):
    """Files by absolute paths, ``/a/b``; a folder is there where something is below it.

    Small, hashable and picklable: what is opened is opened by the process that uses it.
    Raises OSError for what fails, of it FileNotFoundError for a file that is not there; where the
    store is not a disk, PermissionError for what is forbidden and else `failures.StoreCallError`,
    from reads of what it has opened as well.
    """

    failure_hint = "check the store"
    """What the user can do if the store fails; a clause of a message, without a full stop."""

    is_disk = False
    """Whether it is one of this machine's: with folders of their own, locks and moves."""

    open_file_bytes = 0
    """About what a file that is being written holds back."""

    slow_close = False
    """Whether closing a file that was written waits for the store, and not for this machine."""

    has_folders = True
    """Whether a file cannot have the name of a folder."""

    reads_check_version = False
    """Whether every read says of which version of the file it is, so that nobody need look."""

    @property
    def identity(self) -> str:
        """The same for all that have the same files, by whatever URL they were named.

        Says nothing of `options`, by which a store is reached.
        """
        return self.url("/")

    def final_name(self, name: str) -> str:
        """The name, without folders, that a file gets once it is written.

        Some writers, or the store's client, call it otherwise until then, and for ever where they
        are killed.
        """
        return name

    def fence(self, path: str) -> str | None:
        """What all who commit to a table there call it, where they have to go one by one.

        In such a store of two that create the same file both may succeed, and one is lost. None
        where one of them fails.
        """
        return None

    def await_answer(self, path: str) -> None:
        """Wait for the store in a call that lets other threads run, where its client has others.

        Nobody could give those up, not even by Ctrl-C, at a store that stands still.
        """
        return

    @property
    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """``[storage]`` of the job: may hold secrets, so it is in no repr."""

    @abstractmethod
    def url(self, path: str) -> str:
        """What messages, and readers of other programs, call a file or folder."""

    @abstractmethod
    def info(self, path: str) -> fs.FileInfo:
        """Its type (`FileType.NotFound` where there is nothing), size and time of change."""

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder."""
        from pyarrow import fs

        return bool(self.info(path).type == fs.FileType.Directory)

    @abstractmethod
    def list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        """Files and folders in a folder, or all below it; empty where there is no folder."""

    def read_bytes(self, path: str) -> bytes:
        """All of a small file."""
        with self.open_input(path) as file:
            return file.read()

    @abstractmethod
    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset."""

    def open_version(self, path: str, version: FileVersion) -> pa.NativeFile:
        """As `open_input`; reads fail that are not of ``version``, where `reads_check_version`."""
        return self.open_input(path)

    def open_mapped(self, path: str) -> pa.NativeFile:
        """As `open_input`; buffers are pages of a disk's file, and not copies, where that goes."""
        return self.open_input(path)

    @abstractmethod
    def create(self, path: str) -> pa.NativeFile:
        """Open a file for writing, with the folders above it; the caller closes it."""

    @abstractmethod
    def delete_file(self, path: str) -> None:
        """Remove a file; no error where there is none."""

    def delete_empty_folder(self, path: str) -> None:
        """Remove a folder if nothing is in it; no error where something is, or it is gone."""
        return

    def sync(self, path: str) -> None:
        """Return once what was written to a file, or is in a folder, outlasts a power loss.

        A store whose files are there once they are closed has nothing to do.
        """
        return


class PutIfAbsentStore(Store):
    """One that can take a file only where there is none."""

    puts_log_entries = False
    """Whether log entries that only add are better put there by us than written by deltalake."""

    @property
    def why_no_put_if_absent(self) -> str | None:
        """Why it cannot, where what that needs is not installed, say; None where it can."""
        return None

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a small file at once; FileExistsError where it is there, of many one succeeds.

        It is there as a whole or not at all. Another OSError may come after it is there.
        """
