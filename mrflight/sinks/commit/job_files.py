"""The files that a job writes below its table: how they are recognised, and how they are removed.

A part file has its job's id in its name. A listing therefore finds the part files of every attempt,
even of an attempt from which no answer ever came.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from mrflight.errors import CommitError, OutputError, UnsyncedCommitError
from mrflight.storage import Location
from mrflight.storage.deletion import TableFiles, delete_created, delete_created_folder
from mrflight.storage.delta import LOG
from mrflight.storage.failures import reason
from mrflight.storage.manifest_log import MANIFEST_NAME, MANIFESTS, UNNUMBERED
from mrflight.storage.part_name import is_part_of_job, is_part_of_run, job_of_part
from mrflight.system.deadlines import NO_DEADLINE, Deadline

if TYPE_CHECKING:
    from pyarrow import fs

_LOOKED_UP = 4
"""Up to so many files are looked up one by one: each is a request, and so is a listing."""

_ENTRY_NAME = re.compile(r"\d{20}\.json")


class JobFiles(msgspec.Struct, frozen=True):
    """A job's part files below ``table``, and the folders that existed before the job."""

    table: Location
    job_id: str
    partitioned: bool
    folders_before: frozenset[str]
    """The table's folder and those above and below it, as absolute paths."""
    is_own: Callable[[str, str], bool] = is_part_of_job
    """Returns whether a file with this name was written by the job with this id."""

    @classmethod
    def of(
        cls,
        table: Location,
        job_id: str,
        partitioned: bool,
        is_own: Callable[[str, str], bool] = is_part_of_job,
    ) -> JobFiles:
        """Look at the folders that exist. Call this before the job writes anything."""
        before: frozenset[str] = frozenset()
        if table.store.is_disk:  # a bucket has no folders, and HDFS's client only removes trees
            below = table.walk() if partitioned else ()
            above = (table.at(path).info() for path in _upwards(table.path))
            before = frozenset(info.path for info in (*below, *above) if _is_folder(info))
        return cls(table, job_id, partitioned, before, is_own)

    def paths(self, run_hash: str = "") -> set[str]:
        """Return the job's part files that exist now, relative to the table's folder.

        With ``run_hash`` (see `part_name.hash_run_id`) also those of the other jobs of that run
        that may be deleted, so none in tables below this one.
        """
        found = self.table.walk() if self.partitioned or run_hash else self.table.children()
        files = TableFiles(self.table)
        paths = set()
        for info in found:
            path = relative_path(self.table, info.path)
            name = self.table.store.final_name(info.base_name)
            if not info.is_file or not is_in_partition(path):
                continue
            if self.is_own(name, self.job_id) or (
                is_part_of_run(name, run_hash) and files.why_kept(self.table.child(path)) is None
            ):
                paths.add(path)
        return paths

    def missing(self, paths: Collection[str]) -> set[str]:
        """Return which of these part files of the job do not exist.

        Few are looked up one by one, because a table of a stream may have thousands of files.
        """
        if len(paths) > _LOOKED_UP:
            return set(paths) - self.paths()
        return {path for path in paths if not self.table.child(path).info().is_file}

    def check_exist(self, paths: Collection[str], deadline: Deadline) -> None:
        """Raise CommitError if one of these part files is gone, or if the store does not answer.

        A log or a snapshot that named a file that is gone would break the table.
        """
        url = self.table.url
        try:
            gone = deadline.run(partial(self.missing, paths), f"the files in {url} were listed")
        except OSError as error:
            raise CommitError(
                f"{url}: the store does not say whether the files of this job are there, so that "
                f"nothing was committed: {reason(error)}"
            ) from error
        if gone:
            raise CommitError(
                f"{url}: {min(gone)} is gone, which this job wrote; did mrflight clean, or "
                "something like it, run at the same time?"
            )

    def delete_except(self, kept: Collection[str]) -> None:
        """Remove the job's files except ``kept``, and the empty folders that it created.

        A file that cannot be removed stays. It is not committed, and this is called after the
        commit or after another failure.
        """
        with suppress(OSError):
            for path in self.paths() - set(kept):
                with suppress(OSError):
                    delete_created(self.table.child(path))
            self.delete_empty_folders()

    def delete_empty_folders(self) -> None:
        """Remove the folders that the job created and that are empty; raises OSError."""
        if not self.table.store.is_disk:
            return
        found = self.table.walk() if self.partitioned else []
        below = [info.path for info in found if _is_folder(info) and "=" in info.base_name]
        files = TableFiles(self.table)
        for path in sorted(below, reverse=True):
            if path not in self.folders_before:
                files.delete_empty_folder(self.table.at(path))
        for path in _upwards(self.table.path):
            if path not in self.folders_before:
                delete_created_folder(self.table.at(path))


def sync_names(table: Location, paths: Collection[str], deadline: Deadline = NO_DEADLINE) -> None:
    """Let the names of part files survive a power loss, before a commit has them.

    The paths are relative to the table. Raises UnsyncedCommitError.
    """

    def sync() -> None:
        try:
            table.sync_names(paths)
        except OSError as error:
            raise UnsyncedCommitError(
                f"{table.url}: the folders of the new files cannot be synced to the disk, so that "
                f"nothing was committed: {reason(error)}; check the disk and the system's log"
            ) from error

    if table.store.is_disk:
        deadline.run(
            sync, f"the folders of the new files in {table.url} were synced, with nothing committed"
        )


def is_job_file(table: Location, info: fs.FileInfo) -> bool:
    """Return whether a file below a table has a name that only jobs give, and no reader needs it.

    Such a file is a part file where jobs write them, or a log entry or manifest that is not written
    completely.
    """
    path = relative_path(table, info.path)
    folder, name = posixpath.split(path)
    if folder == LOG:
        final = table.store.final_name(name)
        return final != name and _ENTRY_NAME.fullmatch(final) is not None
    is_part_of_table = job_of_file(table, info) is not None and is_in_partition(path)
    return is_part_of_table or is_unfinished_manifest(table, info)


def is_in_partition(path: str) -> bool:
    """Return whether a path below a table is directly in its folder, or in one of a partition."""
    return all("=" in folder for folder in path.split("/")[:-1])


def job_of_file(table: Location, info: fs.FileInfo) -> str | None:
    """Return the job that wrote a part file, finished or not; None for other files."""
    return job_of_part(table.store.final_name(info.base_name))


def is_unfinished_manifest(folder: Location, info: fs.FileInfo) -> bool:
    """Return whether a file below a folder is a manifest that is not written completely."""
    above, name = posixpath.split(relative_path(folder, info.path))
    final = folder.store.final_name(name)
    if final == name:
        return False
    if not above:
        return final == UNNUMBERED
    return above == MANIFESTS and MANIFEST_NAME.fullmatch(final) is not None


def check_is_folder(location: Location) -> None:
    """Raise OutputError if a file has the path of the table or of a folder above it.

    Raises it as well if this cannot be found out, as below a folder that this user may not read.
    """
    if not location.store.has_folders:
        return
    for path in _upwards(location.path):
        try:
            info = location.at(path).info()
        except OSError as error:
            raise OutputError(
                f"output.table: {path} cannot be examined: {error}; choose another folder"
            ) from error
        if info.is_file:
            raise OutputError(f"output.table: {path} is a file; choose another name")


def relative_path(table: Location, path: str) -> str:
    """Return the path of a file below ``table``, relative to it."""
    return path.removeprefix(table.path.rstrip("/") + "/")


def _upwards(path: str) -> Iterator[str]:
    """Yield the folder and those above it, without the root."""
    while path != posixpath.dirname(path):
        yield path
        path = posixpath.dirname(path)


def _is_folder(info: fs.FileInfo) -> bool:
    from pyarrow import fs

    return bool(info.type == fs.FileType.Directory)
