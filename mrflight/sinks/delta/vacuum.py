"""Vacuum: deletes files that the log of a Delta table has removed, after a retention period.

It deletes no other files. A file that the log does not name may belong to a running job, or be a
user's own; those that killed jobs left are found by `orphan_files`. So deltalake's vacuum is used
in the mode in which it goes by the log alone. Whoever may write the table may write its log, so of
what the log has removed only files in folders that Delta writers make are deleted.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from mrflight.errors import OutputError
from mrflight.sinks.commit.job_files import is_in_partition
from mrflight.sinks.delta.synced_log import sync_entry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.deletion import KeptFile, TableFiles
from mrflight.storage.delta import delta_errors, import_deltalake, no_hooks
from mrflight.system.signals import run_interruptibly

_HOUR = timedelta(hours=1)
_CHANGE_DATA = "_change_data/"
_RANDOM_PREFIX = re.compile("[0-9A-Za-z]{2}/")
"""The folder of a data file or deletion vector if ``delta.randomizeFilePrefixes`` is set. Another
``delta.randomPrefixLength`` does not count, as a log could name a folder of any name with it."""


class Retention(msgspec.Struct, frozen=True):
    """The time for which removed files are kept, for readers of older versions."""

    time: timedelta | None = None
    """It is rounded up to whole hours. None stands for the table's property, or else 7 days."""
    is_forced: bool = False
    """Whether a shorter time than the table's property says is accepted."""

    @property
    def hours(self) -> int | None:
        """The whole hours for deltalake; None for the time in the table's property."""
        return None if self.time is None else math.ceil(self.time / _HOUR)


TABLE_RETENTION = Retention()


class RemovedFiles(msgspec.Struct, frozen=True):
    """Files that the log has removed and that still exist."""

    files: tuple[Location, ...]
    size_bytes: int
    kept: tuple[KeptFile, ...] = ()
    """Others, which may not be deleted."""
    all_may_go: bool = True
    """Whether this is so of all files that deltalake would delete, be they there or not."""


def find_removed_files(table: DeltaTable, retention: Retention) -> RemovedFiles:
    """Return the files that were removed longer ago than the retention.

    Raises OutputError if the table's property says a longer time, unless ``is_forced``.
    """
    named = set(_vacuum(table, retention, dry_run=True))
    location = table.location
    with delta_errors(f"the files in {location.url} cannot be listed"):
        # `_vacuum` also returns files that are gone.
        found = run_interruptibly(location.walk) if named else []
        sizes = {info.path: info.size for info in found if info.is_file}
        may, kept = _own_files(table).split(location.child(path) for path in sorted(named))
    there = tuple(file for file in may if file.path in sizes)
    existing = {location.at(path).url for path in sizes}
    return RemovedFiles(
        there,
        sum(sizes[file.path] for file in there),
        tuple(file for file in kept if file.url in existing),
        all_may_go=not kept,
    )


def vacuum(table: DeltaTable, retention: Retention) -> RemovedFiles:
    """Delete what `find_removed_files` finds. This adds two versions to the table if it finds any.

    If commits need a lock, it adds none, because deltalake commits without it. Neither does it if
    some of the files may not be deleted.
    """
    removed = find_removed_files(table, retention)
    location = table.location
    if removed.files:
        sync_entry(location, table.version)  # or a crash might undo the removal of deleted files
    if location.store.lock_name(location.path) is not None or not removed.all_may_go:
        with delta_errors(f"the files that {location.url} has removed cannot be deleted"):
            files = _own_files(table)
            for file in removed.files:
                files.delete(file)
    elif removed.files:
        _vacuum(table, retention, dry_run=False)
        with delta_errors(f"the Delta table {location.url} cannot be read"):
            table.update()
        for version in (table.version - 1, table.version):
            sync_entry(location, version)
    return removed


def _own_files(table: DeltaTable) -> TableFiles:
    properties = table.handle.metadata().configuration
    has_prefixes = properties.get("delta.randomizeFilePrefixes", "false").lower() == "true"
    return TableFiles(table.location, is_place=partial(_is_place, has_prefixes=has_prefixes))


def _is_place(path: str, has_prefixes: bool) -> bool:
    """Return whether Delta writers put files at such a path below a table."""
    path = path.removeprefix(_CHANGE_DATA)
    if has_prefixes and (prefix := _RANDOM_PREFIX.match(path)):
        path = path[prefix.end() :]
    return is_in_partition(path)


def _vacuum(table: DeltaTable, retention: Retention, *, dry_run: bool) -> list[str]:
    def call() -> Any:
        try:
            return table.handle.vacuum(
                retention_hours=retention.hours,
                dry_run=dry_run,
                enforce_retention_duration=not retention.is_forced,
                post_commithook_properties=no_hooks() if table.location.store.is_disk else None,
            )
        except import_deltalake().exceptions.DeltaError as error:
            if "retention period" not in str(error):
                raise
            raise OutputError(
                f"{table.location.url} keeps removed files for longer than that, for readers of "
                f"older versions ({_table_retention(table)}); --force removes them all the same, "
                "and jobs that are reading such a version then fail"
            ) from error

    with delta_errors(f"the files that {table.location.url} has removed cannot be deleted"):
        paths: list[str] = run_interruptibly(call)
        return paths


def _table_retention(table: DeltaTable) -> str:
    time = table.handle.metadata().configuration.get("delta.deletedFileRetentionDuration")
    return "7 days" if time is None else f"delta.deletedFileRetentionDuration = {time!r}"
