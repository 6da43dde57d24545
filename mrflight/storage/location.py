"""A file or folder by its URL, and what can be done with it.

Local disks only so far; every store reaches the rest of mrflight as a
`pyarrow.fs.FileSystem`, so that others fit in behind `Location.filesystem`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from mrflight.errors import InputError, JobError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


@dataclass(frozen=True)
class Location:
    """A file or folder. Picklable; opening happens at the call, in the process that calls."""

    path: str
    """Absolute, as `filesystem` takes it."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``[storage]`` of the job: may hold secrets, so it is in no repr."""

    @property
    def filesystem(self) -> fs.FileSystem:
        from pyarrow import fs

        return fs.LocalFileSystem()

    @property
    def url(self) -> str:
        """What messages and the table's readers call it."""
        return self.path

    def child(self, name: str) -> Location:
        return replace(self, path=f"{self.path.rstrip('/')}/{name}")

    def at(self, path: str) -> Location:
        """Another file or folder of the same store."""
        return replace(self, path=path)

    def info(self) -> fs.FileInfo:
        """Its type (`FileType.NotFound` where there is nothing), size and time of change."""
        return self.filesystem.get_file_info(self.path)

    def walk(self) -> list[fs.FileInfo]:
        """Everything below this folder, files and folders; empty where there is no folder."""
        from pyarrow import fs

        selector = fs.FileSelector(self.path, recursive=True, allow_not_found=True)
        return self.filesystem.get_file_info(selector)

    def children(self) -> list[fs.FileInfo]:
        """The files and folders right in this folder; empty where there is no folder."""
        from pyarrow import fs

        return self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))

    def open_input(self) -> pa.NativeFile:
        """Open the file for reads at any offset; InputError where it cannot be."""
        try:
            return self.filesystem.open_input_file(self.path)
        except OSError as error:
            raise InputError(f"{self.url} cannot be read: {error}") from error

    def open_mapped(self) -> pa.NativeFile:
        """As `open_input`, memory-mapped: buffers read from it are the file's pages, not copies."""
        from pyarrow import fs

        try:
            return fs.LocalFileSystem(use_mmap=True).open_input_file(self.path)
        except OSError as error:
            raise InputError(f"{self.url} cannot be read: {error}") from error

    def create(self) -> pa.NativeFile:
        """Open the file for writing, making its folders; the caller closes it."""
        try:
            return self._create()
        except FileNotFoundError:  # who cleans up has removed a folder before anything was in it
            return self._create()

    def _create(self) -> pa.NativeFile:
        filesystem = self.filesystem
        filesystem.create_dir(os.path.dirname(self.path), recursive=True)
        return filesystem.open_output_stream(self.path)

    def sync(self) -> None:
        """Return once what was written to the file, or is in the folder, outlasts a power loss."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def delete_file(self) -> None:
        """Remove the file; no error where there is none."""
        try:
            self.filesystem.delete_file(self.path)
        except FileNotFoundError:
            return

    def delete_empty_folder(self) -> None:
        """Remove the folder if nothing is in it; no error where something is, or it is gone."""
        # pyarrow's delete_dir would remove what another writer has just put there.
        with suppress(OSError):
            os.rmdir(self.path)


def locate(path: str, base: Path, options: Mapping[str, str] | None = None) -> Location:
    """The location of a path or URL, relative ones from ``base``; JobError for other stores."""
    # In a glob or a name, ? and # are themselves and not the start of a query.
    parts = urlsplit(path.replace("?", "%3F").replace("#", "%23"))
    if len(parts.scheme) > 1 and parts.scheme != "file":  # one letter is a Windows drive
        raise JobError(
            f"{path}: no store for {parts.scheme}:// yet; this version reads and writes local disks"
        )
    local = unquote(parts.path) if parts.scheme == "file" else path
    return Location(os.path.normpath(base / local), options or {})
