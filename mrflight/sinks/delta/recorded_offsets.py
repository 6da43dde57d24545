"""The next offsets of a stream that a Delta table has recorded, as application transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mrflight.errors import StreamRestoredError
from mrflight.sinks.delta.restores import find_restore
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sources.recorded_names import is_of_stream
from mrflight.storage.delta import delta_errors
from mrflight.storage.delta_transactions import read_transactions


def app_id(stream: str, partition: str) -> str:
    """Return the application id of a partition, ``<cluster>/<topic id>/<number>``, of a stream."""
    return f"{_prefix(stream)}{partition}"


def _prefix(stream: str) -> str:
    return f"mrflight/{stream}/"


class RecordedOffsets:
    """The offsets that a table has recorded for a stream, kept up with the entries of its log."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._version: int | None = None
        self._offsets: dict[str, int] = {}

    def at(self, table: DeltaTable) -> dict[str, int]:
        """Return the offsets by partition at the table's version.

        The first call reads the transactions of the log since its last checkpoint, and later ones
        only the entries that are new. Raises StreamRestoredError if one of those undoes versions
        of the table, and CommitError if the log cannot be read.
        """
        if self._version is None or table.version < self._version:
            self._load(table)
        else:
            self._advance(table, self._version)
        self._version = table.version
        return dict(self._offsets)

    def _load(self, table: DeltaTable) -> None:
        with delta_errors(f"the log of {table.location.url} cannot be read"):
            found = read_transactions(table.location, table.version, _prefix(self._stream))
        self._offsets = self._of_stream(found.items())
        self._check_not_restored(table)

    def _check_not_restored(self, table: DeltaTable) -> None:
        """Look back at the entries since the stream's last commit, as far as there are any."""
        for version in range(table.version, -1, -1):
            actions = table.actions(version)
            if actions is None or self._found(actions):
                return
            self._refuse_restore(table, version, actions)

    def _advance(self, table: DeltaTable, version: int) -> None:
        for newer in range(version + 1, table.version + 1):
            actions = table.logged_actions(newer)
            self._refuse_restore(table, newer, actions)
            self._offsets |= self._found(actions)

    def _found(self, actions: list[dict[str, Any]]) -> dict[str, int]:
        found = (action["txn"] for action in actions if "txn" in action)
        return self._of_stream((each["appId"], int(each["version"])) for each in found)

    def _of_stream(self, transactions: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Return the numbers of those transactions that are the stream's, by the recorded names."""
        prefix = _prefix(self._stream)
        return {
            app[len(prefix) :]: number
            for app, number in transactions
            if app.startswith(prefix) and is_of_stream(self._stream, app[len(prefix) :])
        }

    def _refuse_restore(
        self, table: DeltaTable, version: int, actions: list[dict[str, Any]]
    ) -> None:
        if self._offsets and find_restore(version, actions) is not None:
            raise StreamRestoredError(
                f"{table.location.url} was restored to an earlier version (version {version} "
                f"is a RESTORE), and still records how far stream {self._stream!r} had come, "
                "so that the rows that were undone would never come again; delete the rows "
                "that should not be there instead of restoring, or let the stream begin anew "
                "in this table under another stream.name and with inputs.*.start"
            )
