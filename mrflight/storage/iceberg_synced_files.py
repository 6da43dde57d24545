"""Syncs the metadata of Iceberg tables to the disk as pyiceberg writes it.

pyiceberg (0.12) syncs nothing. Here each metadata file, manifest and manifest list is synced, with
its name and its folders, when it is closed, and so before the catalog is told of it.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from mrflight.storage.disk import Disk, committed_syncs

if TYPE_CHECKING:
    from sqlalchemy import Engine


def sync_metadata(url: str) -> None:
    """Sync the metadata file of a committed table, if it is on a disk of this machine.

    Raises UnsyncedCommitError.
    """
    path = _path_on_disk(url)
    if path is not None:
        with committed_syncs(path), suppress(FileNotFoundError):  # it is on the server's disk
            _sync(path)


def sync_catalog(engine: Engine) -> None:
    """Let a catalog in SQLite survive a power loss right after a commit."""
    if engine.dialect.name == "sqlite":
        from sqlalchemy import event

        event.listen(engine, "checkout", _sync_extra)


def _sync_extra(connection: Any, *_: object) -> None:
    """Let SQLite sync the folder as well once it has removed its journal.

    Otherwise the journal may be there again after a power loss, and undo the commit.
    """
    connection.execute("PRAGMA synchronous = EXTRA")


def synced(io: FileIO) -> FileIO:
    """Let the files that are written be synced when they are closed."""
    open_output = io.new_output

    def new_output(location: str) -> OutputFile:
        file = open_output(location)
        path = _path_on_disk(location)
        if path is not None:
            create = file.create
            file.create = lambda overwrite=False: _SyncedStream(  # type: ignore[method-assign]
                create(overwrite), path
            )
        return file

    io.new_output = new_output  # type: ignore[method-assign]
    return io


class _SyncedStream(OutputStream):
    """A file that is being written."""

    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream, self._path = stream, path

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        _sync(self._path)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        self.close()


def _path_on_disk(location: str) -> str | None:
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return path if scheme == "file" else None


def _sync(path: str) -> None:
    disk = Disk()
    disk.sync(path)
    disk.sync_names([path])
