"""Removing what a job wrote and nothing else: its part files, then the folders it made.

A part file carries its job's id in its name, so a listing finds those of every
attempt, also of one that nobody heard of again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mrflight.errors import OutputError
from mrflight.sinks.parts.part_name import is_part_of_job, is_part_of_run
from mrflight.storage import Location

if TYPE_CHECKING:
    from pyarrow import fs


class JobFiles(msgspec.Struct, frozen=True):
    """A job's part files below ``table``, and the folders that were there before it."""

    table: Location
    job_id: str
    partitioned: bool
    folders_before: frozenset[str]
    """The table's folder with those above and below it, as absolute paths."""

    @classmethod
    def of(cls, table: Location, job_id: str, partitioned: bool) -> JobFiles:
        """To be called before the job writes anything."""
        before: frozenset[str] = frozenset()
        if table.store.is_disk:  # a bucket has none, and HDFS's client removes trees only
            below = table.walk() if partitioned else ()
            above = (table.at(path).info() for path in _upwards(table.path))
            before = frozenset(info.path for info in (*below, *above) if _is_folder(info))
        return cls(table, job_id, partitioned, before)

    def paths(self, run: str = "") -> set[str]:
        """The job's part files as they are on the disk now, relative to the table's folder.

        With ``run`` those of the other jobs with that mark as well: see `part_name.hash_run_id`.
        """
        found = self.table.walk() if self.partitioned or run else self.table.children()
        return {
            relative_path(self.table, info.path)
            for info in found
            if info.is_file and self._is_own(self.table.store.final_name(info.base_name), run)
        }

    def _is_own(self, name: str, run: str) -> bool:
        return is_part_of_job(name, self.job_id) or is_part_of_run(name, run)

    def delete_except(self, kept: Collection[str]) -> None:
        """Remove the job's files but for ``kept``, and folders of its making that are empty.

        What cannot be removed stays: it is not committed, and this comes after the commit, or
        after another failure.
        """
        with suppress(OSError):
            for path in self.paths() - set(kept):
                with suppress(OSError):
                    self.table.child(path).delete_file()
            if self.table.store.is_disk:
                self._delete_empty_folders()

    def _delete_empty_folders(self) -> None:
        found = self.table.walk() if self.partitioned else []
        below = [info.path for info in found if _is_folder(info) and "=" in info.base_name]
        for path in (*sorted(below, reverse=True), *_upwards(self.table.path)):
            if path not in self.folders_before:
                self.table.at(path).delete_empty_folder()


def check_is_folder(location: Location) -> None:
    """OutputError where a file has the table's name, or that of a folder above it.

    And where that cannot be told, as behind a folder that this user may not look into.
    """
    if not location.store.has_folders:
        return
    for path in _upwards(location.path):
        try:
            info = location.at(path).info()
        except OSError as error:
            raise OutputError(
                f"output.table: {path} cannot be looked at: {error}; choose another folder"
            ) from error
        if info.is_file:
            raise OutputError(f"output.table: {path} is a file; choose another name")


def relative_path(table: Location, path: str) -> str:
    """The path of a file below ``table``, relative to it."""
    return path.removeprefix(table.path.rstrip("/") + "/")


def _upwards(path: str) -> Iterator[str]:
    """The folder and those above it, without the root."""
    while path != posixpath.dirname(path):
        yield path
        path = posixpath.dirname(path)


def _is_folder(info: fs.FileInfo) -> bool:
    from pyarrow import fs

    return bool(info.type == fs.FileType.Directory)
