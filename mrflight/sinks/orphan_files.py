"""Orphan files, which killed drivers left behind: files that their table does not name.

A part file is an orphan only if its name is one that mrflight gives, it lies where jobs write them
and may be deleted (see `mrflight.storage.deletion`), no log names it (not even as removed), no
manifest names it except as a tombstone, and it and its job are so old that the job cannot be
running. Files are listed before the log is read, so that the files of a commit in between
are not orphans. A log entry or manifest that was not written completely when its writer was killed
is an orphan as well, because no reader looks for the name that it has.

If the first job of a table was killed, there is no table that proves this. The files are found only
in a folder that holds nothing else and lies in no table, and removed only with ``no_table``.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.errors import OutputError
from mrflight.ids import job_started
from mrflight.sinks.commit.job_files import (
    is_job_file,
    job_of_file,
    relative_path,
)
from mrflight.storage import Location
from mrflight.storage.deletion import KeptFile, TableFiles, is_table_folder
from mrflight.storage.delta import LOG
from mrflight.storage.manifest_log import MANIFESTS, ManifestLog

if TYPE_CHECKING:
    from pyarrow import fs


class OrphanFile(msgspec.Struct, frozen=True):
    """A file that no commit will ever name."""

    path: str
    """Relative to the table's folder."""
    job_id: str | None
    """The job that wrote the file; None if its name does not say that."""
    size_bytes: int


class OrphanFiles(msgspec.Struct, frozen=True):
    """The orphan files in one folder, ordered by their path."""

    files: tuple[OrphanFile, ...]
    newer: int
    """The number of other files that would be orphans if they were older."""
    is_proven: bool
    """Whether a log, a manifest or a mark proves that the files are not needed."""
    kept: tuple[KeptFile, ...] = ()
    """The files that would be orphans as well, but lie outside of the own location of their table,
    which a catalog has."""
    undecided: tuple[str, ...] = ()
    """The files of bad rows that stay, because their job was killed as it committed."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class CatalogTable(Protocol):
    """A table that a catalog knows, so that its folder has no log."""

    @property
    def folder(self) -> Location:
        """The folder of its data files."""

    @property
    def files(self) -> TableFiles:
        """The files that may be deleted."""

    def names(self) -> set[str]:
        """Return the names, without folders, of the files that the catalog names."""


def find_orphan_files(
    table: Location, before: datetime, in_catalog: CatalogTable | None = None
) -> OrphanFiles:
    """Return the orphan files that were last changed ``before`` then, as were their jobs started.

    Raises OutputError if ``table`` is neither a Delta table, nor a folder with a manifest, nor that
    of a table ``in_catalog``, nor a folder in which only jobs wrote, and if it cannot be read
    completely.
    """
    try:
        return _find(table, before, in_catalog)
    except OSError as error:
        raise OutputError(f"{table.url} cannot be listed: {error}; nothing was removed") from error


def _find(table: Location, before: datetime, in_catalog: CatalogTable | None) -> OrphanFiles:
    found = table.walk()
    named = _named_files(table) if in_catalog is None else in_catalog.names()
    files = TableFiles(table) if in_catalog is None else in_catalog.files
    if named is None:
        _check_only_job_files(table, found)
    left = {
        info.path: info
        for info in found
        if info.is_file and is_job_file(table, info) and info.base_name not in (named or ())
    }
    may, kept = files.split(table.at(path) for path in sorted(left))
    orphans, newer = [], 0
    for info in (left[file.path] for file in may):
        job_id = job_of_file(table, info)
        changed = info.mtime.astimezone(UTC)
        if changed < before and (job_id is None or job_started(job_id) < before):
            orphans.append(OrphanFile(relative_path(table, info.path), job_id, info.size))
        else:
            newer += 1
    stays = () if in_catalog is None else tuple(file for file in kept if not file.is_named)
    return OrphanFiles(tuple(orphans), newer, named is not None, stays)


def remove_orphan_files(
    table: Location,
    orphans: OrphanFiles,
    files: TableFiles | None = None,
    *,
    no_table: bool = False,
) -> None:
    """Remove the files; raise OutputError for the first that cannot be removed.

    ``files`` are those of a table in a catalog, by default those below ``table``.

    ``no_table`` removes them also if no table proves that they are not needed, with the partition
    folders that are empty then. Without it, OutputError is raised in this case.
    """
    if not orphans.is_proven and not no_table:
        raise OutputError(
            f"there is no table at {table.url}, so its files may be a copy of a table's files and "
            "not orphans; nothing was removed: add --no-table if they are orphans, which no job "
            "will commit any more"
        )
    files = TableFiles(table) if files is None else files
    for orphan in orphans.files:
        try:
            files.delete(table.child(orphan.path))
        except OSError as error:
            raise OutputError(f"{orphan.path} cannot be removed: {error}") from error
        path = "" if orphans.is_proven else posixpath.dirname(orphan.path)
        while path:
            files.delete_empty_folder(table.child(path))
            path = posixpath.dirname(path)


def _check_only_job_files(table: Location, found: list[fs.FileInfo]) -> None:
    """Raise OutputError if a folder without a log has other files, or lies in a table.

    The folder of a partition has files of its table, whose log is in a folder above.
    """
    foreign = next((info for info in found if not _is_made_by_job(table, info)), None)
    if foreign is None and any(info.is_file for info in found):
        for folder in _parents(table):
            if is_table_folder(folder):
                raise OutputError(
                    f"{table.url} lies in the table {folder.url}, whose files these may be; name "
                    "that one"
                )
        return
    holds = "" if foreign is None else f" (it holds {relative_path(table, foreign.path)})"
    raise OutputError(
        f"{table.url} is neither a Delta table nor a folder that mrflight wrote{holds}; name the "
        "folder that is output.table of a job"
    )


def _is_made_by_job(table: Location, info: fs.FileInfo) -> bool:
    """Return whether jobs create such a file or folder before a first commit; never a link."""
    path = relative_path(table, info.path)
    folders = path.split("/") if not info.is_file else path.split("/")[:-1]
    is_link = table.store.is_disk and os.path.islink(info.path)
    if is_link or (info.is_file and not is_job_file(table, info)):
        return False
    return folders in ([LOG], [MANIFESTS]) or all("=" in folder for folder in folders)


def _parents(table: Location) -> Iterator[Location]:
    path = os.path.realpath(table.path) if table.store.is_disk else table.path
    while path != posixpath.dirname(path):
        path = posixpath.dirname(path)
        yield table.at(path)


def _named_files(table: Location) -> set[str] | None:
    """Return the names, without folders, of all files that the table's log or manifest names.

    None if there is neither of them.
    """
    try:
        log = [info for info in table.child(LOG).walk() if info.is_file]
        if any(info.base_name.endswith((".json", ".parquet")) for info in log):
            return {name for info in log for name in _named_by(table.at(info.path))}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, pa.ArrowException) as error:
        raise OutputError(
            f"the log of {table.url} cannot be read completely ({error}), so it is not known "
            "which files are orphans; nothing was removed"
        ) from error
    manifests = ManifestLog(table)
    entry = manifests.newest()
    if entry.manifest is None:
        return None
    manifests.sync(entry)  # or a crash might bring back an older one, which names other files
    return {posixpath.basename(path) for path in entry.manifest.files}


def _named_by(entry: Location) -> Iterator[str]:
    """Yield the files that one file of a Delta log adds or removes."""
    name = posixpath.basename(entry.path)
    if name.endswith(".json"):
        actions = [json.loads(line) for line in entry.read_bytes().splitlines() if line.strip()]
        yield from _paths(actions)
    elif name.endswith(".parquet"):
        with pq.ParquetFile(entry.open_input()) as file:
            kinds = [kind for kind in ("add", "remove") if kind in file.schema_arrow.names]
            for batch in file.iter_batches(columns=[f"{kind}.path" for kind in kinds]):
                yield from _paths(batch.to_pylist())


def _paths(actions: list[dict[str, Any]]) -> Iterator[str]:
    for action in actions:
        for kind in ("add", "remove"):
            if (change := action.get(kind)) and change.get("path") is not None:
                yield posixpath.basename(unquote(change["path"]))
