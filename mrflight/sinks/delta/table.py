"""A loaded version of a Delta table, and the checks that mrflight can write to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.parts.file_statistics import INDEXED_COLUMNS
from mrflight.storage import Location
from mrflight.storage.delta import (
    delta_errors,
    entry_name,
    has_deletion_vectors,
    is_table,
    open_table,
)
from mrflight.system.signals import run_interruptibly

_WRITABLE_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
}
"""The writer features of tables that deltalake commits to. A table may support checkConstraints,
columnMapping, generatedColumns and invariants, but not use them: see `check_writable`."""

CHECKPOINT_INTERVAL = 100
"""The interval that deltalake (1.6) uses for tables without ``delta.checkpointInterval``."""

_COLUMN_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


class DeltaTable:
    """One version of a table, with deltalake's handle.

    The handle may be of an older version, after appends of our own that leave the schema and all
    else that is read from it as they were.
    """

    def __init__(self, location: Location, handle: Any) -> None:
        self.location = location
        self.handle = handle
        self._appended: int | None = None

    @classmethod
    def load(cls, location: Location) -> DeltaTable | None:
        """Load the newest version; None if there is no table. CommitError if it is unreadable."""

        def load() -> DeltaTable | None:
            return cls(location, open_table(location)) if is_table(location) else None

        with delta_errors(f"the Delta table {location.url} cannot be read"):
            return run_interruptibly(load)

    @property
    def version(self) -> int:
        return int(self.handle.version()) if self._appended is None else self._appended

    def note_append(self, version: int) -> None:
        """Go on as the next version, which we have committed and which only adds files."""
        self._appended = version

    def update(self) -> None:
        """Read what has come to the log, also by other writers. Raises deltalake's errors."""
        run_interruptibly(self.handle.update_incremental)
        self._appended = None

    def update_handle(self) -> None:
        """Bring the handle to this version, for a commit by deltalake.

        Raises CommitError if the table has a newer version, or cannot be read.
        """
        if self._appended is None:
            return
        with self.errors():
            run_interruptibly(self.handle.update_incremental)
        if self.handle.version() != self._appended:
            raise CommitError(
                f"{self.location.url}: another writer has committed after version {self._appended}"
            )
        self._appended = None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.handle.schema().to_arrow())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.handle.metadata().partition_columns)

    @property
    def indexed_columns(self) -> int:
        """The number of columns whose minima and maxima are in the log; negative for all."""
        count = self.handle.metadata().configuration.get("delta.dataSkippingNumIndexedCols")
        return INDEXED_COLUMNS if count is None else int(count)

    def is_checkpoint_due(self, version: int) -> bool:
        """Return whether the writer that commits this version makes a checkpoint of it.

        If the table's property is not a number, deltalake (1.6) makes no checkpoints at all.
        """
        interval = self.handle.metadata().configuration.get("delta.checkpointInterval")
        try:
            every = CHECKPOINT_INTERVAL if interval is None else int(interval)
        except ValueError:
            return False
        return every > 0 and (version + 1) % every == 0

    @property
    def features(self) -> Collection[str]:
        return self.handle.protocol().writer_features or ()

    def added_paths(
        self, is_own: Callable[[list[dict[str, Any]]], bool], committed: int
    ) -> set[str] | None:
        """Return the files that a commit added; None if the log is gone.

        ``is_own`` tells its entry from others. ``committed`` is its version or one before it.
        """
        paths: set[str] = set()
        # A transaction's number may be lower than the version: see `DeltaCommit._overwrite`.
        for version in range(committed, self.version + 1):
            actions = self.actions(version)
            if actions is None:
                return None
            if is_own(actions):
                paths |= {unquote(action["add"]["path"]) for action in actions if "add" in action}
        return paths

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of one log entry; None if it is gone or cannot be read."""
        try:
            return self._read_actions(version)
        except (OSError, ValueError):  # cleaned up, or compacted
            return None

    def kept_actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the same; None if it is gone, and CommitError if it cannot be read."""
        with self.errors(), suppress(FileNotFoundError):
            return self._read_actions(version)
        return None

    def _read_actions(self, version: int) -> list[dict[str, Any]]:
        entry = self.location.child(entry_name(version))

        def read() -> list[dict[str, Any]]:
            return [json.loads(line) for line in entry.read_bytes().splitlines() if line]

        return run_interruptibly(read)

    def logged_actions(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of one log entry; raise CommitError if it is gone."""
        actions = self.actions(version)
        if actions is None:
            raise CommitError(
                f"{self.location.url}: the log entry of version {version} cannot be read any more, "
                "so that it is not known what other writers have done"
            )
        return actions

    def check_writable(self, mode: str) -> None:
        """Raise OutputError for a table with rules that mrflight would break."""
        self._check_features("write to another table")
        configuration = self.handle.metadata().configuration
        if mode in ("overwrite", "merge") and configuration.get("delta.appendOnly") == "true":
            raise self._refused("may only be appended to (delta.appendOnly)")
        if mode == "merge" and configuration.get("delta.enableChangeDataFeed") == "true":
            raise self._refused(
                "requires a change data feed, which mrflight does not write "
                "(delta.enableChangeDataFeed)"
            )
        rules = [key for key in configuration if key.startswith("delta.constraints.")]
        for column in self.handle.schema().fields:
            rules += [f"{key} of {column.name}" for key in _COLUMN_RULES if key in column.metadata]
        if rules:
            raise self._refused(
                "has rules that its writers must check, which mrflight does not "
                f"({', '.join(rules)})"
            )

    def check_maintainable(self) -> None:
        """Raise OutputError for a table whose rows cannot be found in its files alone.

        Rules for columns and constraints do no harm, because the same rows stay in the table.
        """
        self._check_features("maintain it with the program that writes it")
        self.check_no_deletion_vectors()

    def check_no_deletion_vectors(self) -> None:
        """Raise OutputError if rows of the files may be deleted, which a rewrite would restore."""
        with delta_errors(f"the log of {self.location.url} cannot be read"):
            # A client that lists them is asked whatever the features are; another one would count
            # every table as having them.
            lists_them = hasattr(self.handle, "deletion_vectors")
            may_have = (lists_them or "deletionVectors" in self.features) and has_deletion_vectors(
                self.handle
            )
        if may_have:
            raise self._refused(
                "has deletion vectors, or may have them, which mrflight cannot rewrite",
                "purge them first with REORG TABLE ... APPLY (PURGE)",
            )

    def _check_features(self, advice: str) -> None:
        foreign = sorted(set(self.features) - _WRITABLE_FEATURES)
        if foreign:
            features = ", ".join(foreign)
            raise self._refused(
                f"needs writers that support {features}, which mrflight does not", advice
            )
        mapping = self.handle.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise self._refused(
                "maps its columns to other names, which mrflight does not support "
                "(delta.columnMapping.mode)",
                advice,
            )

    def check_partition_by(self, wanted: Sequence[str], operation: str = "appended to") -> None:
        """Raise OutputError if new files would need other partition folders than the table has."""
        if tuple(wanted) != self.partition_by:
            raise OutputError(
                f"{self.location.url} cannot be {operation}: it is partitioned by "
                f"{list(self.partition_by)}, not {list(wanted)}; set output.partition_by to that"
            )

    def errors(self) -> AbstractContextManager[None]:
        """Raise CommitError, which says that the table cannot be read, for what is raised."""
        return delta_errors(f"the Delta table {self.location.url} cannot be read")

    def _refused(self, reason: str, advice: str = "write to another table") -> OutputError:
        return OutputError(f"the Delta table {self.location.url} {reason}; {advice}")
