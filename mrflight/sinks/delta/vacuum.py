"""Files that a Delta table's log has removed, and that nobody is to read any more.

Only those: a file that no log names may be of a job that runs, or somebody's own (what killed
jobs left is for `leftovers`). They are taken from deltalake's vacuum, in the mode in which it
goes by the log alone.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import msgspec

from mrflight.errors import OutputError
from mrflight.sinks.commit.job_files import relative_path
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage.delta import delta_errors, import_deltalake
from mrflight.system.signals import run_interruptibly

_HOUR = timedelta(hours=1)


class Retention(msgspec.Struct, frozen=True):
    """How long removed files are kept for those who read older versions."""

    time: timedelta | None = None
    """Whole hours count, and a part of one as one. None: as the table says, 7 days by default."""
    is_forced: bool = False
    """Also where the table says a longer time."""

    @property
    def hours(self) -> int | None:
        """As deltalake is told."""
        return None if self.time is None else math.ceil(self.time / _HOUR)


AS_THE_TABLE_SAYS = Retention()


class RemovedFiles(msgspec.Struct, frozen=True):
    """Which are still there."""

    paths: frozenset[str]
    """Relative to the table's folder, as the store has them."""
    size_bytes: int


def find_removed(table: DeltaTable, retention: Retention) -> RemovedFiles:
    """Those that were removed longer ago. OutputError where the table wants them kept longer."""
    named = set(_vacuum(table, retention, dry_run=True))
    location = table.location
    with delta_errors(f"the files in {location.url} cannot be listed"):
        # `_vacuum` names files that are gone, too.
        found = run_interruptibly(location.walk) if named else []
    sizes = {relative_path(location, info.path): info.size for info in found if info.is_file}
    there = named & sizes.keys()
    return RemovedFiles(frozenset(there), sum(sizes[path] for path in there))


def vacuum(table: DeltaTable, retention: Retention) -> RemovedFiles:
    """Delete what `find_removed` finds. Adds two versions to the table, where there is any.

    None where commits need a lock, which deltalake's would pass by.
    """
    removed = find_removed(table, retention)
    location = table.location
    if location.store.lock_name(location.path) is not None:
        with delta_errors(f"the files that {location.url} has removed cannot be deleted"):
            for path in sorted(removed.paths):
                location.child(path).delete_file()
    elif removed.paths:
        _vacuum(table, retention, dry_run=False)
    return removed


def _vacuum(table: DeltaTable, retention: Retention, *, dry_run: bool) -> list[str]:
    def call() -> Any:
        try:
            return table.handle.vacuum(
                retention_hours=retention.hours,
                dry_run=dry_run,
                enforce_retention_duration=not retention.is_forced,
            )
        except import_deltalake().exceptions.DeltaError as error:
            if "retention period" not in str(error):
                raise
            raise OutputError(
                f"{table.location.url} keeps removed files for longer than that, for those who "
                f"read an older version ({_wanted(table)}); --force removes them all the same, "
                "and who is reading such a version then fails"
            ) from error

    with delta_errors(f"the files that {table.location.url} has removed cannot be deleted"):
        paths: list[str] = run_interruptibly(call)
        return paths


def _wanted(table: DeltaTable) -> str:
    wanted = table.handle.metadata().configuration.get("delta.deletedFileRetentionDuration")
    return "7 days" if wanted is None else f"delta.deletedFileRetentionDuration = {wanted!r}"
