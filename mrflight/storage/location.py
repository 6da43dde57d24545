"""A file or folder by its URL, and what can be done with it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from mrflight.errors import JobError
from mrflight.storage import hopsfs
from mrflight.storage.disk import Disk
from mrflight.storage.failures import read_failure
from mrflight.storage.hdfs import NameNode
from mrflight.storage.option_names import scheme_of
from mrflight.storage.s3 import Bucket
from mrflight.storage.store import FileVersion, PutIfAbsentStore, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


class Location(msgspec.Struct, frozen=True):
    """A file or folder. Picklable; opening happens at the call, in the process that calls."""

    path: str
    """Absolute, as `store` takes it."""
    store: Store = msgspec.field(default_factory=Disk)
    version: FileVersion | None = None
    """Of a file that is to be read; where `Store.reads_check_version` other ones fail."""

    @property
    def options(self) -> Mapping[str, str]:
        """``[storage]`` of the job: may hold secrets."""
        return self.store.options

    @property
    def url(self) -> str:
        """What messages and the table's readers call it."""
        return self.store.url(self.path)

    def child(self, name: str) -> Location:
        return self.at(f"{self.path.rstrip('/')}/{name}")

    def at(self, path: str) -> Location:
        """Another file or folder of the same store."""
        return replace(self, path=path, version=None)

    def of(self, version: FileVersion | None) -> Location:
        """The same file, of this version."""
        return replace(self, version=version)

    def is_same(self, other: Location) -> bool:
        """Whether both are one file or folder, however its store is called and reached."""
        return self.store.identity == other.store.identity and self.path == other.path

    def lies_in(self, folder: Location) -> bool:
        """Whether it is below a folder, at any depth; as `is_same` has it."""
        above = folder.path.rstrip("/")  # of a root nothing is left
        is_below = self.path != folder.path and self.path.startswith(f"{above}/")
        return is_below and self.store.identity == folder.store.identity

    @property
    def checks_version(self) -> bool:
        """Whether reading it fails where it is not of its version, and nobody need look."""
        has_bytes = self.version is not None and self.version.size_bytes > 0  # or nothing is read
        return has_bytes and self.store.reads_check_version

    def is_folder(self) -> bool:
        """Whether it is there, as a folder."""
        return self.store.is_folder(self.path)

    def info(self) -> fs.FileInfo:
        """Its type (`FileType.NotFound` where there is nothing), size and time of change."""
        return self.store.info(self.path)

    def walk(self) -> list[fs.FileInfo]:
        """Everything below this folder, files and folders; empty where there is no folder."""
        return self.store.list(self.path, recursive=True)

    def children(self) -> list[fs.FileInfo]:
        """The files and folders right in this folder; empty where there is no folder."""
        return self.store.list(self.path, recursive=False)

    def open_input(self) -> pa.NativeFile:
        """Open the file for reads at any offset; InputError or StoreError where it cannot be."""
        try:
            if self.version is not None and self.checks_version:
                return self.store.open_version(self.path, self.version)
            return self.store.open_input(self.path)
        except OSError as error:
            raise read_failure(f"{self.url} cannot be read", error, self.store) from error

    def open_mapped(self) -> pa.NativeFile:
        """As `open_input`, memory-mapped: buffers read from it are the file's pages, not copies.

        Where the file is on a disk; of other stores they are copies.
        """
        if self.checks_version:
            return self.open_input()
        try:
            return self.store.open_mapped(self.path)
        except OSError as error:
            raise read_failure(f"{self.url} cannot be read", error, self.store) from error

    def read_bytes(self) -> bytes:
        """All of a small file; OSError where it cannot be read, FileNotFoundError without one."""
        return self.store.read_bytes(self.path)

    def create(self) -> pa.NativeFile:
        """Open the file for writing, making its folders; the caller closes it."""
        return self.store.create(self.path)

    def why_no_put_if_absent(self) -> str | None:
        """Why the store cannot take a file only where there is none; None where it can."""
        if not isinstance(self.store, PutIfAbsentStore):
            return "the store cannot take a file only where there is none"
        return self.store.why_no_put_if_absent

    def put_if_absent(self, data: bytes) -> None:
        """Write a small file at once, if there is none: FileExistsError. See `PutIfAbsentStore`."""
        assert isinstance(self.store, PutIfAbsentStore), "why_no_put_if_absent was not asked"
        self.store.put_if_absent(self.path, data)

    def sync(self) -> None:
        """Return once what was written to the file, or is in the folder, outlasts a power loss."""
        self.store.sync(self.path)

    def delete_file(self) -> None:
        """Remove the file; no error where there is none."""
        self.store.delete_file(self.path)

    def delete_empty_folder(self) -> None:
        """Remove the folder if nothing is in it; no error where something is, or it is gone."""
        self.store.delete_empty_folder(self.path)


def locate(path: str, base: Path, options: Mapping[str, str] | None = None) -> Location:
    """The location of a path or URL, relative paths from ``base``.

    Names are taken as they are: a ``%``, a ``?`` and a ``#`` are themselves, and encode nothing.
    JobError for a store that mrflight does not know, or a URL that does not name one, or that has
    credentials, which messages would show, or another machine's name before a path on a disk.
    """
    _check_without_credentials(path)
    scheme = scheme_of(path)
    ours = hopsfs.VARIABLES  # which its client takes from the environment
    given = tuple(sorted(item for item in (options or {}).items() if item[0] not in ours))
    if len(scheme) <= 1:  # one letter is a Windows drive
        return Location(os.path.normpath(base / path), Disk(given))
    if scheme == "file":
        return Location(os.path.normpath(base / _path_on_disk(path)), Disk(given))
    rest = path.partition("://")[2]
    authority, _, inside = rest.partition("/")
    if scheme not in _STORES:
        known = ", ".join(f"{known}://" for known in ("file", *_STORES))
        raise JobError(f"{path}: no store for {scheme}://; take a path, or one of {known}")
    if not authority:
        raise JobError(f"{path}: what comes after {scheme}:// is {_NAMED[scheme]}")
    return Location(posixpath.normpath(f"/{inside}"), _STORES[scheme](authority, given))


def _check_without_credentials(path: str) -> None:
    """Raise JobError, without the rest of the URL, for one with a user or a password.

    A secret may have a slash, so that what follows the first one may still be of it.
    """
    scheme, _, rest = path.partition("://")
    authority = rest.partition("/")[0]
    if "@" in authority or (scheme.lower() in ("s3", "s3a") and ":" in authority):
        raise JobError(
            f"{scheme}://...: a URL is shown in messages, so it may hold no user, key or password: "
            "write them into [storage] (aws_access_key_id and aws_secret_access_key for S3), or "
            "into the environment of the command (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )


def _path_on_disk(url: str) -> str:
    """What comes after ``file:``, and the host that it may have: this one."""
    rest = url.partition(":")[2]
    if not rest.startswith("//"):
        return rest
    host, slash, below = rest[2:].partition("/")
    if host.lower() not in ("", "localhost"):
        raise JobError(
            f"{url}: what comes after file:// is a host, and {host} would be one; write "
            f"file:///{rest[2:]} where it is the first folder of an absolute path, and {rest[2:]}, "
            "without file://, for a path from here"
        )
    if not slash:
        raise JobError(f"{url}: no path comes after it; write file:///... or a path")
    return f"/{below.lstrip('/')}"


def _name_node(authority: str, given: tuple[tuple[str, str], ...]) -> NameNode:
    if ":" not in authority.rpartition("]")[2] and hopsfs.is_client():
        # Without one it takes the path for a part of the host's name (hops-deltalake 1.4).
        authority = f"{authority}:{hopsfs.HOPS_PORT}"
    return NameNode(authority, given)


_STORES: dict[str, Callable[[str, tuple[tuple[str, str], ...]], Store]] = {
    "s3": Bucket,
    "s3a": Bucket,
    "hdfs": _name_node,
    "hopsfs": _name_node,
}
_NAMED = {
    "s3": "a bucket's name",
    "s3a": "a bucket's name",
    "hdfs": "the name node's host and port",
    "hopsfs": "the name node's host and port",
}
