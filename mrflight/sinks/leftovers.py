"""Files that their table does not name: what killed drivers left behind.

A part file is taken for one only if its name is one of ours, no log names it, be
it as removed, and no manifest does but as to be removed, and it and its job are
old enough that the job cannot be running. Files are listed before the log is
read, so that a commit in between takes none of its files for one. A log entry
or a manifest that was only half written when its writer was killed counts as
well: under the name that it has, no reader looks for it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.errors import OutputError
from mrflight.sinks.manifest import is_temporary, read_manifest
from mrflight.sinks.own_files import relative_path
from mrflight.sinks.part_name import job_of_part
from mrflight.storage import Location

LOG = "_delta_log"
_STAGED = re.compile(r"\d{20}\.json#\d+")
"""How delta-rs calls a log entry that it has not linked to its name yet (object_store)."""
_JOB_STARTED = "%Y%m%dT%H%M%S"


@dataclass(frozen=True)
class Leftover:
    """A file that no commit will ever name."""

    path: str
    """Relative to the table's folder."""
    job_id: str | None
    """None for one that does not say who wrote it."""
    size_bytes: int


def find_leftovers(table: Location, before: datetime) -> list[Leftover]:
    """The leftovers of jobs that began, and in files that were last changed, ``before`` then.

    Raises OutputError where ``table`` is neither a Delta table nor a folder with a manifest of
    ours, or where its log cannot be read whole.
    """
    found = [
        (info, job_of_part(info.base_name))
        for info in table.walk()
        if info.is_file and _may_be_left(relative_path(table, info.path))
    ]
    named = _named_files(table)
    return sorted(
        (
            Leftover(relative_path(table, info.path), job_id, info.size)
            for info, job_id in found
            if info.base_name not in named
            and (job_id is None or _job_started(job_id) < before)
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


def _may_be_left(path: str) -> bool:
    """Whether a file, relative to its table, has a name that only drivers give."""
    folder, name = posixpath.split(path)
    if folder == LOG:
        return is_staged(name)
    return job_of_part(name) is not None or (not folder and is_temporary(name))


def is_staged(name: str) -> bool:
    """Whether a file in a Delta log is an entry that was being written."""
    return _STAGED.fullmatch(name) is not None


def _job_started(job_id: str) -> datetime:
    """When a job began, as its id says; for an id of another kind, just now."""
    try:
        return datetime.strptime(job_id.split("-")[0], _JOB_STARTED).replace(tzinfo=UTC)
    except ValueError:
        return datetime.now(UTC)


def _named_files(table: Location) -> set[str]:
    """Names, without folders, of all files that the table's log or manifest keeps."""
    try:
        log = [info for info in table.child(LOG).walk() if info.is_file]
        if any(info.base_name.endswith((".json", ".parquet")) for info in log):
            return {name for info in log for name in _named_by(table.at(info.path))}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, pa.ArrowException) as error:
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
    return {posixpath.basename(path) for path in manifest.files}


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
