"""Part files that their table does not name: what killed drivers left behind.

A file is taken for one only if its name is that of a part file of ours, neither
a log nor a manifest names it, be it as removed, and it and its job are old
enough that the job cannot be running. Files are listed before the log is read,
so that a commit in between takes none of its files for one.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.errors import OutputError
from mrflight.sinks.manifest import read_manifest
from mrflight.sinks.own_files import relative_path
from mrflight.sinks.part_name import job_of_part
from mrflight.storage import Location

_LOG = "_delta_log"
_JOB_STARTED = "%Y%m%dT%H%M%S"


@dataclass(frozen=True)
class Leftover:
    """A part file that no commit will ever name."""

    path: str
    """Relative to the table's folder."""
    job_id: str
    size_bytes: int


def find_leftovers(table: Location, before: datetime) -> list[Leftover]:
    """The leftovers of jobs that began, and in files that were last changed, ``before`` then.

    Raises OutputError where ``table`` is neither a Delta table nor a folder with a manifest of
    ours, or where its log cannot be read whole.
    """
    found = [
        (info, job_id)
        for info in table.walk()
        if info.is_file and (job_id := job_of_part(info.base_name)) is not None
    ]
    named = _named_files(table)
    return sorted(
        (
            Leftover(relative_path(table, info.path), job_id, info.size)
            for info, job_id in found
            if info.base_name not in named
            and _job_started(job_id) < before
            and info.mtime.astimezone(UTC) < before
        ),
        key=lambda leftover: leftover.path,
    )


def remove_leftovers(table: Location, leftovers: list[Leftover]) -> None:
    """Remove the files; OutputError at the first that cannot be."""
    for leftover in leftovers:
        try:
            table.child(leftover.path).delete_file()
        except OSError as error:
            raise OutputError(f"{leftover.path} cannot be removed: {error}") from error


def _job_started(job_id: str) -> datetime:
    """When a job began, as its id says; for an id of another kind, just now."""
    try:
        return datetime.strptime(job_id.split("-")[0], _JOB_STARTED).replace(tzinfo=UTC)
    except ValueError:
        return datetime.now(UTC)


def _named_files(table: Location) -> set[str]:
    """Names, without folders, of all files that the table's log or manifest knows."""
    try:
        log = table.child(_LOG).walk()
        if log:
            return {name for info in log if info.is_file for name in _named_by(table.at(info.path))}
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise OutputError(
            f"the log of {table.url} cannot be read whole ({error}), so that nobody can tell what "
            "is left over; nothing was removed"
        ) from error
    manifest = read_manifest(table)
    if manifest is None:
        raise OutputError(
            f"{table.url} is neither a Delta table nor a folder that mrflight wrote; name the "
            "folder that is output.table of a job"
        )
    return {posixpath.basename(path) for path in (*manifest.files, *manifest.removing)}


def _named_by(entry: Location) -> Iterator[str]:
    """The files that one file of a Delta log adds or removes."""
    name = posixpath.basename(entry.path)
    if name.endswith(".json"):
        with entry.filesystem.open_input_file(entry.path) as file:
            actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
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
