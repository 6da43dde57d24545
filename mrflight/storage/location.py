"""A file or folder by its URL, and the operations on it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
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
    """A file or folder. It is picklable: each call opens what it needs in its own process."""

    path: str
    """The absolute path in `store`."""
    store: Store = msgspec.field(default_factory=Disk)
    version: FileVersion | None = None
    """The version to read. With `Store.reads_check_version`, reads of another version fail."""

    @property
    def options(self) -> Mapping[str, str]:
        """The job's ``[storage]``. It may hold secrets."""
        return self.store.options

    @property
    def url(self) -> str:
        """The URL for messages and for readers of the table."""
        return self.store.url(self.path)

    def child(self, name: str) -> Location:
        return self.at(f"{self.path.rstrip('/')}/{name}")

    def at(self, path: str) -> Location:
        """Return another file or folder of the same store."""
        return replace(self, path=path, version=None)

    def in_store(self, store: Store) -> Location:
        """Return the same file or folder through another object of its store."""
        return replace(self, store=store)

    def of(self, version: FileVersion | None) -> Location:
        """Return the same file in this version."""
        return replace(self, version=version)

    def is_same(self, other: Location) -> bool:
        """Return whether both are the same file or folder, however their store is addressed."""
        return self.store.identity == other.store.identity and self.path == other.path

    def lies_in(self, folder: Location) -> bool:
        """Return whether it is below a folder, at any depth; compares stores like `is_same`."""
        above = folder.path.rstrip("/")  # empty for the root
        is_below = self.path != folder.path and self.path.startswith(f"{above}/")
        return is_below and self.store.identity == folder.store.identity

    @property
    def checks_version(self) -> bool:
        """Whether reads fail if the file has another version, so that no other check is needed."""
        if self.version is None or not self.version.size_bytes:  # an empty file is never read
            return False
        return self.store.reads_check_version

    def is_folder(self) -> bool:
        """Return whether it exists and is a folder."""
        return self.store.is_folder(self.path)

    def info(self) -> fs.FileInfo:
        """Return the type (`FileType.NotFound` if nothing is there), size and modification time."""
        return self.store.info(self.path)

    def walk(self) -> list[fs.FileInfo]:
        """List all files and folders below this folder; empty if there is no folder."""
        return self.store.list(self.path, recursive=True)

    def children(self) -> list[fs.FileInfo]:
        """List the files and folders directly in this folder; empty if there is no folder."""
        return self.store.list(self.path, recursive=False)

    def open_input(self) -> pa.NativeFile:
        """Open the file for reads at any offset; raise InputError or StoreError on failure."""
        try:
            if self.version is not None and self.checks_version:
                return self.store.open_version(self.path, self.version)
            return self.store.open_input(self.path)
        except OSError as error:
            raise read_failure(f"{self.url} cannot be read", error, self.store) from error

    def open_mapped(self) -> pa.NativeFile:
        """Open the file like `open_input`; on a disk it is memory-mapped.

        Buffers read from a mapped file are its pages. From other stores they are copies.
        """
        if self.checks_version:
            return self.open_input()
        try:
            return self.store.open_mapped(self.path)
        except OSError as error:
            raise read_failure(f"{self.url} cannot be read", error, self.store) from error

    def read_bytes(self) -> bytes:
        """Return the content of a small file; raise OSError, or FileNotFoundError without one."""
        return self.store.read_bytes(self.path)

    def create(self) -> pa.NativeFile:
        """Open the file for writing and create its folders; the caller closes it."""
        return self.store.create(self.path)

    def why_no_put_if_absent(self) -> str | None:
        """Return why `put_if_absent` does not work in this store; None if it does."""
        if not isinstance(self.store, PutIfAbsentStore):
            return "the store cannot create a file only if it does not exist"
        return self.store.why_no_put_if_absent

    def put_if_absent(self, data: bytes) -> None:
        """Write a small file in one step; FileExistsError if it exists. See `PutIfAbsentStore`."""
        assert isinstance(self.store, PutIfAbsentStore), "check why_no_put_if_absent first"
        self.store.put_if_absent(self.path, data)

    def sync(self) -> None:
        """Make the file's content, or the folder's entries, survive a power loss."""
        self.store.sync(self.path)

    def sync_names(self, paths: Iterable[str]) -> None:
        """Make the names of files below this folder, and of folders above, survive a power loss."""
        self.store.sync_names([self.child(path).path for path in paths])

    def delete_file(self, below: Location | None = None) -> None:
        """Remove the file. It is no error if there is none.

        With ``below``, a folder above it, no link between the two is followed. Of tables only
        `mrflight.storage.deletion` deletes anything.
        """
        self.store.delete_file(self.path, below.path if below is not None else None)

    def delete_empty_folder(self, below: Location | None = None) -> None:
        """Remove the folder if it is empty. It is no error if it is not, or does not exist.

        ``below`` is as for `delete_file`.
        """
        self.store.delete_empty_folder(self.path, below.path if below is not None else None)


def locate(path: str, base: Path, options: Mapping[str, str] | None = None) -> Location:
    """Return the location of a path or URL; relative paths start from ``base``.

    A path that begins with ``~/`` is in the home folder, as shells and other libraries take it.
    Other names are taken literally: ``%``, ``?`` and ``#`` encode nothing. Raises JobError for an
    unknown scheme, a URL without a bucket or host, credentials in a URL (messages would show them),
    and the name of another machine in a ``file://`` URL.
    """
    _check_without_credentials(path)
    scheme = scheme_of(path)
    ours = hopsfs.VARIABLES  # the client takes these from the environment
    given = tuple(sorted(item for item in (options or {}).items() if item[0] not in ours))
    if len(scheme) <= 1:  # one letter is a Windows drive
        return Location(os.path.normpath(base / _in_home(path)), Disk(given))
    if scheme == "file":
        return Location(os.path.normpath(base / _path_on_disk(path)), Disk(given))
    rest = path.partition("://")[2]
    authority, _, inside = rest.partition("/")
    if scheme not in _STORES:
        known = ", ".join(f"{known}://" for known in ("file", *_STORES))
        raise JobError(f"{path}: {scheme}:// is not supported; use a path, or one of {known}")
    if not authority:
        raise JobError(f"{path}: {scheme}:// must be followed by {_AUTHORITIES[scheme]}")
    return Location(posixpath.normpath(f"/{inside}"), _STORES[scheme](authority, given))


def _in_home(path: str) -> str:
    """Return a path with the home folder in place of a ``~`` at its beginning."""
    return os.path.expanduser(path) if path.startswith("~/") else path


def _check_without_credentials(path: str) -> None:
    """Raise JobError for a URL with a user or a password.

    The message shows only the scheme: a secret may contain a slash, so that what follows the first
    one may still be part of it.
    """
    scheme, _, rest = path.partition("://")
    authority = rest.partition("/")[0]
    if "@" in authority or (scheme.lower() in ("s3", "s3a") and ":" in authority):
        raise JobError(
            f"{scheme}://...: a URL is shown in messages, so it must not contain a user, key or "
            "password; set them in [storage] (aws_access_key_id and aws_secret_access_key for S3), "
            "or in the environment of the command (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )


def _path_on_disk(url: str) -> str:
    """Return the path of a ``file:`` URL. A host, if there is one, must be this one."""
    rest = url.partition(":")[2]
    if not rest.startswith("//"):
        return rest
    host, slash, below = rest[2:].partition("/")
    if host.lower() not in ("", "localhost"):
        raise JobError(
            f"{url}: what follows file:// is a host, and {host!r} is not this machine; write "
            f"file:///{rest[2:]} for an absolute path, or {rest[2:]} for a relative one"
        )
    if not slash:
        raise JobError(f"{url}: the path is missing; write file:///... or a path")
    return f"/{below.lstrip('/')}"


def _name_node(authority: str, given: tuple[tuple[str, str], ...]) -> NameNode:
    if ":" not in authority.rpartition("]")[2] and hopsfs.is_client():
        # Without a port hops-deltalake (1.4) takes the path as part of the host's name.
        authority = f"{authority}:{hopsfs.HOPS_PORT}"
    return NameNode(authority, given)


_STORES: dict[str, Callable[[str, tuple[tuple[str, str], ...]], Store]] = {
    "s3": Bucket,
    "s3a": Bucket,
    "hdfs": _name_node,
    "hopsfs": _name_node,
}
_AUTHORITIES = {
    "s3": "a bucket's name",
    "s3a": "a bucket's name",
    "hdfs": "the name node's host and port",
    "hopsfs": "the name node's host and port",
}
