"""Files that their table does not name: what killed drivers left behind.

A part file is taken for one only if its name is one of ours, no log names it, be
it as removed, and no manifest does but as to be removed, and it and its job are
old enough that the job cannot be running. Files are listed before the log is
read, so that a commit in between takes none of its files for one. A log entry
or a manifest that was only half written when its writer was killed counts as
well: under the name that it has, no reader looks for it.

Where a job was killed that was to be the first there is no table to prove that. What is listed
then is in a folder that holds nothing else, and lies in no table; whoever removes it says so.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.errors import OutputError
from mrflight.sinks.commit.job_files import (
    LOG,
    MANIFESTS,
    UNNUMBERED,
    is_job_file,
    job_of_file,
    relative_path,
)
from mrflight.sinks.folder.manifest_log import ManifestLog
from mrflight.storage import Location

if TYPE_CHECKING:
    from pyarrow import fs

_JOB_STARTED = "%Y%m%dT%H%M%S"


class OrphanFile(msgspec.Struct, frozen=True):
    """A file that no commit will ever name."""

    path: str
    """Relative to the table's folder."""
    job_id: str | None
    """None for one that does not say who wrote it."""
    size_bytes: int


class OrphanFiles(msgspec.Struct, frozen=True):
    """What jobs left in one folder, by its path."""

    files: tuple[OrphanFile, ...]
    younger: int
    """How many other files would be among them if they were older."""
    has_table: bool
    """Whether a log or a manifest is there: it proves that the files are in vain."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def find_orphan_files(table: Location, before: datetime) -> OrphanFiles:
    """The leftovers of jobs that began, and in files that were last changed, ``before`` then.

    Raises OutputError where ``table`` is neither a Delta table nor a folder with a manifest of
    ours, nor one with files of ours alone, or where it cannot be read whole.
    """
    try:
        return _find(table, before)
    except OSError as error:
        raise OutputError(f"{table.url} cannot be listed: {error}; nothing was removed") from error


def _find(table: Location, before: datetime) -> OrphanFiles:
    found = table.walk()
    named = _named_files(table)
    if named is None:
        _check_ours_alone(table, found)
    left, younger = [], 0
    for info in found:
        path, job_id = relative_path(table, info.path), job_of_file(table, info)
        if not info.is_file or not is_job_file(table, info) or info.base_name in (named or ()):
            continue
        changed = info.mtime.astimezone(UTC)
        if changed < before and (job_id is None or _job_started(job_id) < before):
            left.append(OrphanFile(path, job_id, info.size))
        else:
            younger += 1
    left.sort(key=lambda leftover: leftover.path)
    return OrphanFiles(tuple(left), younger, named is not None)


def remove_orphan_files(table: Location, leftovers: OrphanFiles, *, no_table: bool = False) -> None:
    """Remove the files; OutputError at the first that cannot be.

    ``no_table``: also where no table proves that nobody needs them, and folders for parts of one
    that are empty then. OutputError where that is so and not wanted.
    """
    if not leftovers.has_table and not no_table:
        raise OutputError(
            f"no table is in {table.url}, so that nothing proves that its files are not "
            "somebody's copy of one's; nothing was removed: add --no-table if they are not, and "
            "no job is to commit them any more"
        )
    for leftover in leftovers.files:
        try:
            table.child(leftover.path).delete_file()
        except OSError as error:
            raise OutputError(f"{leftover.path} cannot be removed: {error}") from error
        path = "" if leftovers.has_table else posixpath.dirname(leftover.path)
        while path:
            table.child(path).delete_empty_folder()
            path = posixpath.dirname(path)


def _check_ours_alone(table: Location, found: list[fs.FileInfo]) -> None:
    """OutputError where a folder without a log holds, or is, more than what jobs left there.

    The partition of a table has its files, and its log is in a folder above.
    """
    strange = next((info for info in found if not _is_of_a_job(table, info)), None)
    if strange is None and any(info.is_file for info in found):
        for folder in _above(table):
            if any(_is_there(folder.child(name)) for name in (LOG, MANIFESTS, UNNUMBERED)):
                raise OutputError(
                    f"{table.url} lies in the table {folder.url}, whose files these may be; name "
                    "that one"
                )
        return
    holds = "" if strange is None else f" (it holds {relative_path(table, strange.path)})"
    raise OutputError(
        f"{table.url} is neither a Delta table nor a folder that mrflight wrote{holds}; name the "
        "folder that is output.table of a job"
    )


def _is_of_a_job(table: Location, info: fs.FileInfo) -> bool:
    """Whether jobs make such files and folders in a table before it is one; they make no links."""
    path = relative_path(table, info.path)
    folders = path.split("/") if not info.is_file else path.split("/")[:-1]
    is_link = table.store.is_disk and os.path.islink(info.path)
    if is_link or (info.is_file and not is_job_file(table, info)):
        return False
    return folders in ([LOG], [MANIFESTS]) or all("=" in folder for folder in folders)


def _above(table: Location) -> Iterator[Location]:
    path = os.path.realpath(table.path) if table.store.is_disk else table.path
    while path != posixpath.dirname(path):
        path = posixpath.dirname(path)
        yield table.at(path)


def _is_there(location: Location) -> bool:
    from pyarrow import fs

    if location.store.is_disk:
        return os.path.lexists(location.path)  # a link that leads nowhere is something
    return bool(location.info().type != fs.FileType.NotFound)


def _job_started(job_id: str) -> datetime:
    """When a job began, as its id says; for an id of another kind, just now."""
    try:
        return datetime.strptime(job_id.split("-")[0], _JOB_STARTED).replace(tzinfo=UTC)
    except ValueError:
        return datetime.now(UTC)


def _named_files(table: Location) -> set[str] | None:
    """Names, without folders, of all files that the table's log or manifest keeps.

    None where there is neither of them.
    """
    try:
        log = [info for info in table.child(LOG).walk() if info.is_file]
        if any(info.base_name.endswith((".json", ".parquet")) for info in log):
            return {name for info in log for name in _named_by(table.at(info.path))}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, pa.ArrowException) as error:
        raise OutputError(
            f"the log of {table.url} cannot be read whole ({error}), so that nobody can tell what "
            "is left over; nothing was removed"
        ) from error
    manifest = ManifestLog(table).newest().manifest
    if manifest is None:
        return None
    return {posixpath.basename(path) for path in manifest.files}


def _named_by(entry: Location) -> Iterator[str]:
    """The files that one file of a Delta log adds or removes."""
    name = posixpath.basename(entry.path)
    if name.endswith(".json"):
        actions = [json.loads(line) for line in entry.read_bytes().splitlines() if line.strip()]
        yield from _paths(actions)
    elif name.endswith(".parquet"):
        with pq.ParquetFile(entry.open_input()) as file:
            wanted = [kind for kind in ("add", "remove") if kind in file.schema_arrow.names]
            for batch in file.iter_batches(columns=[f"{kind}.path" for kind in wanted]):
                yield from _paths(batch.to_pylist())


def _paths(actions: list[dict[str, Any]]) -> Iterator[str]:
    for action in actions:
        for kind in ("add", "remove"):
            if (change := action.get(kind)) and change.get("path") is not None:
                yield posixpath.basename(unquote(change["path"]))
