"""A Delta table as it stands: whether it is there, and whether we can write to it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from mrflight.errors import OutputError
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
"""Writer features that deltalake commits to. Of checkConstraints, columnMapping,
generatedColumns and invariants only the support, not the use: see `check_writable`."""

CHECKPOINT_INTERVAL = 100
"""Of tables whose properties name none, for deltalake (1.6)."""

_COLUMN_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


class DeltaTable:
    """One version of a table: a loaded handle, and what we need to know of it."""

    def __init__(self, location: Location, handle: Any) -> None:
        self.location = location
        self.handle = handle

    @classmethod
    def load(cls, location: Location) -> DeltaTable | None:
        """The newest version; None where there is no table. CommitError where it is unreadable."""

        def load() -> DeltaTable | None:
            return cls(location, open_table(location)) if is_table(location) else None

        with delta_errors(f"the Delta table {location.url} cannot be read"):
            return run_interruptibly(load)

    @property
    def version(self) -> int:
        return int(self.handle.version())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.handle.schema().to_arrow())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.handle.metadata().partition_columns)

    @property
    def indexed_columns(self) -> int:
        """Of how many columns its log holds minima and maxima; negative for all."""
        wanted = self.handle.metadata().configuration.get("delta.dataSkippingNumIndexedCols")
        return INDEXED_COLUMNS if wanted is None else int(wanted)

    def is_checkpoint_due(self, version: int) -> bool:
        """Whether a checkpoint of this version is to be made by who commits it.

        Never where the table's property is no number of versions: deltalake (1.6) makes none then.
        """
        wanted = self.handle.metadata().configuration.get("delta.checkpointInterval")
        try:
            every = CHECKPOINT_INTERVAL if wanted is None else int(wanted)
        except ValueError:
            return False
        return every > 0 and (version + 1) % every == 0

    @property
    def features(self) -> Collection[str]:
        return self.handle.protocol().writer_features or ()

    def committed_version(self, app_id: str) -> int | None:
        """The version that ``app_id`` committed: our transactions carry it as their number.

        CommitError where the log, which is read again for it, is unreadable.
        """
        with delta_errors(f"the Delta table {self.location.url} cannot be read"):
            version: int | None = run_interruptibly(lambda: self.handle.transaction_version(app_id))
            return version

    def committed_after(self, version: int, app_id: str) -> int | None:
        """As `committed_version`, of an ``app_id`` that had not committed up to ``version``.

        Only the entries of the log after that are read.
        """
        for newer in range(version + 1, self.version + 1):
            actions = self.actions(newer)
            if actions is None:  # nobody can tell from this one
                return self.committed_version(app_id)
            for action in actions:
                if (told := action.get("txn", {})).get("appId") == app_id:
                    return int(told["version"])
        return None

    def added_paths(self, app_id: str, committed: int) -> set[str] | None:
        """The files that ``app_id`` added with its `committed_version`; None: the log is gone."""
        paths: set[str] = set()
        # To the newest version, as its number may be too low: see `DeltaCommit._overwrite`.
        for version in range(committed, self.version + 1):
            actions = self.actions(version)
            if actions is None:
                return None
            if any(action.get("txn", {}).get("appId") == app_id for action in actions):
                paths |= {unquote(action["add"]["path"]) for action in actions if "add" in action}
        return paths

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """What one entry of the log says; None where it is gone, or cannot be read."""
        entry = self.location.child(entry_name(version))

        def read() -> list[dict[str, Any]]:
            return [json.loads(line) for line in entry.read_bytes().splitlines() if line]

        try:
            return run_interruptibly(read)
        except (OSError, ValueError):  # cleaned up, or compacted
            return None

    def check_writable(self, mode: str) -> None:
        """OutputError for a table whose rules we would break or cannot follow."""
        self._check_features("write to another table")
        configuration = self.handle.metadata().configuration
        if mode in ("overwrite", "merge") and configuration.get("delta.appendOnly") == "true":
            raise self._refused("may only be appended to (delta.appendOnly)")
        if mode == "merge" and configuration.get("delta.enableChangeDataFeed") == "true":
            raise self._refused("wants every change told (delta.enableChangeDataFeed)")
        rules = [key for key in configuration if key.startswith("delta.constraints.")]
        for column in self.handle.schema().fields:
            rules += [f"{key} of {column.name}" for key in _COLUMN_RULES if key in column.metadata]
        if rules:
            raise self._refused(f"has rules that its writers must check ({', '.join(rules)})")

    def check_maintainable(self) -> None:
        """OutputError for a table whose files alone do not say what is in it.

        Rules of its columns and constraints hold for the same rows in other files as well.
        """
        self._check_features("maintain it with what writes it")
        if "deletionVectors" in self.features and has_deletion_vectors(self.handle):
            raise OutputError(
                f"the Delta table {self.location.url} has deletion vectors, or may have them, "
                "which mrflight cannot write again; purge them first with REORG TABLE ... APPLY "
                "(PURGE)"
            )

    def _check_features(self, advice: str) -> None:
        foreign = sorted(set(self.features) - _WRITABLE_FEATURES)
        if foreign:
            raise self._refused(f"needs writers to know {', '.join(foreign)}", advice)
        mapping = self.handle.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise self._refused(
                "maps its columns to other names (delta.columnMapping.mode)", advice
            )

    def check_partition_by(self, wanted: Sequence[str], operation: str = "appended to") -> None:
        """OutputError where new files would need other folders than the table has."""
        if tuple(wanted) != self.partition_by:
            raise OutputError(
                f"{self.location.url} cannot be {operation}: it is partitioned by "
                f"{list(self.partition_by)}, not {list(wanted)}; set output.partition_by to that"
            )

    def _refused(self, reason: str, advice: str = "write to another table") -> OutputError:
        return OutputError(
            f"the Delta table {self.location.url} {reason}, which mrflight does not; {advice}"
        )
