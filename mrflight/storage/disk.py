"""The disks of this machine, and file systems that are mounted like one."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.errors import UnsyncedCommitError
from mrflight.storage.store import ChangedFileError, FileVersion, PutIfAbsentStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


_STAGED = re.compile(r"(\d{20}\.json)#\d+|(.+)\.[0-9a-f]{8}\.tmp")
"""The temporary names of files: that of delta-rs for an entry of a log, and ours."""


_synced: dict[tuple[int, int], int] = {}
"""The folders that were synced, by device and inode, with the times of their last changes."""

_CLOCK_NS = 2_000_000_000
"""Two changes of a folder may have the same time if they are no further apart."""


@dataclass(frozen=True)
class Disk(PutIfAbsentStore):
    """Files by the paths of the operating system."""

    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """``[storage]``. Disks need none of it; deltalake may, for a table on a disk."""

    is_disk = True
    failure_hint = "check the disk, or what is mounted there, and the system's log"

    def final_name(self, name: str) -> str:
        staged = _STAGED.fullmatch(name)
        return name if staged is None else staged[1] or staged[2]

    @property
    def options(self) -> Mapping[str, str]:
        return dict(self.given)

    def url(self, path: str) -> str:
        return path

    @property
    def filesystem(self) -> fs.FileSystem:
        return _local_files(use_mmap=False)

    def info(self, path: str) -> fs.FileInfo:
        return self.filesystem.get_file_info(path)

    def list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        from pyarrow import fs

        selector = fs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        try:
            return self.filesystem.get_file_info(selector)
        except FileNotFoundError:  # the folder was made while pyarrow looked for it
            return self.filesystem.get_file_info(selector)

    def open_input(self, path: str) -> pa.NativeFile:
        return self.filesystem.open_input_file(path)

    def read_version(self, path: str, version: FileVersion) -> bytes:
        """See `Store.read_version`; one open file is checked and read."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before, content = os.fstat(descriptor), os.read(descriptor, version.size_bytes)
            while len(content) < version.size_bytes and (
                more := os.read(descriptor, version.size_bytes - len(content))
            ):
                content += more
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        for found in (before, after):
            is_of_time = version.mtime_ns is None or found.st_mtime_ns == version.mtime_ns
            if not is_of_time or found.st_size != version.size_bytes:
                raise ChangedFileError(path)
        return content

    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def open_mapped(self, path: str) -> pa.NativeFile:
        return _local_files(use_mmap=True).open_input_file(path)

    def create(self, path: str) -> pa.NativeFile:
        try:
            return self._create(path)
        except FileNotFoundError:  # a cleanup removed the folder while it was empty
            return self._create(path)

    def _create(self, path: str) -> pa.NativeFile:
        filesystem = self.filesystem
        filesystem.create_dir(os.path.dirname(path), recursive=True)
        return filesystem.open_output_stream(path)

    def delete_file(self, path: str, below: str | None = None) -> None:
        with suppress(FileNotFoundError):
            if below is None:
                self.filesystem.delete_file(path)
            else:
                with _open_folder(os.path.dirname(path), below) as folder:
                    os.unlink(os.path.basename(path), dir_fd=folder)

    def delete_empty_folder(self, path: str, below: str | None = None) -> None:
        # pyarrow's delete_dir would also remove a file that another writer has just put there.
        above, name = os.path.split(path)
        with suppress(OSError), _open_folder(above, above if below is None else below) as folder:
            os.rmdir(name, dir_fd=folder)

    def sync(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot sync a folder; PostgreSQL, too, goes on (fsync_fname_ext).
            if error.errno != errno.EINVAL or not os.path.isdir(path):
                raise
        finally:
            os.close(descriptor)

    def sync_names(self, paths: Iterable[str]) -> None:
        """See `Store.sync_names`; a folder that this user cannot write to has no new names."""
        seen = set()
        for path in paths:
            folder = os.path.dirname(path)
            while folder not in seen and os.access(folder, os.W_OK):
                seen.add(folder)
                self._sync_folder(folder)
                folder = os.path.dirname(folder)

    def _sync_folder(self, folder: str) -> None:
        """Sync a folder, unless it is as this process has synced it before."""
        found = os.stat(folder)
        key, changed_ns = (found.st_dev, found.st_ino), found.st_ctime_ns
        if _synced.get(key) == changed_ns:
            return
        if os.access(folder, os.R_OK):
            self.sync(folder)
        else:
            os.sync()  # a folder that cannot be read cannot be opened
        if time.time_ns() - changed_ns > _CLOCK_NS:
            _synced[key] = changed_ns

    def put_if_absent(self, path: str, data: bytes) -> None:
        """See `PutIfAbsentStore.put_if_absent`. The file and its folder survive a power loss.

        Raises UnsyncedCommitError if the file is there and its folder cannot be synced.
        """
        folder = os.path.dirname(path)
        staged = f"{path}.{os.urandom(4).hex()}.tmp"
        try:
            with self.create(staged) as file:
                file.write(data)
            self.sync(staged)
            os.link(staged, path)  # a rename would replace an existing file
        finally:
            self.delete_file(staged)
        with committed_syncs(path):
            self.sync(folder)
            self._sync_folder(os.path.dirname(folder))


@contextmanager
def _open_folder(path: str, below: str) -> Iterator[int]:
    """Yield a descriptor of a folder that is, or lies in, the folder ``below``.

    Each folder is opened from the one above, so that it cannot be replaced by a link meanwhile.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(below, flags)
    try:
        for name in filter(None, os.path.relpath(path, below).split(os.sep)):
            opened = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = opened
        yield folder
    finally:
        os.close(folder)


@contextmanager
def committed_syncs(what: str) -> Iterator[None]:
    """Raise UnsyncedCommitError for an error of a sync after which ``what`` is committed."""
    try:
        yield
    except OSError as error:
        raise UnsyncedCommitError(
            f"{what} is committed, but it could not be synced to the disk ({error}), so that a "
            "crash of this machine may undo it: check the disk and the system's log, and then "
            "whether the commit is still there"
        ) from error


@cache
def _local_files(*, use_mmap: bool) -> fs.FileSystem:
    from pyarrow import fs

    return fs.LocalFileSystem(use_mmap=use_mmap)
