"""A job's table, which is loaded once and then updated with the new entries of its log.

To load a table, deltalake (1.6) reads every log entry since the last checkpoint twice, and once
more to find the version of an application id. On S3 these are all of an append's requests except
for five. So a job keeps one handle from its beginning to its commit.
"""

from __future__ import annotations

import json
from contextlib import suppress

from mrflight.sinks.delta.commit_identity import CommitIdentity
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.delta import LOG, delta_errors, entry_name
from mrflight.storage.store import FileVersion
from mrflight.system.signals import run_interruptibly


class TableSnapshot:
    """A job's view of its table, and of its own commit to it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._table: DeltaTable | None = None
        self._version: int | None = None
        self._entry: FileVersion | None = None

    @property
    def seen_version(self) -> int | None:
        """The version of the table when the job began; None if there was no table."""
        return self._version

    def begin(self, table: DeltaTable) -> None:
        """Start from ``table``, to which the job has committed nothing yet.

        If a table is removed and created again, deltalake (1.6) does not notice, and takes the
        versions of the new table for versions of the old one. So the file of the newest log entry
        is remembered, which is never written again. Raises CommitError if it cannot be looked up.
        """
        self._table, self._version = table, table.version
        self._entry = self._newest_entry()

    def refresh(self, identity: CommitIdentity) -> tuple[DeltaTable | None, int | None]:
        """Return the table as it is now, and the version of the commit of this identity.

        Raises CommitError if the table cannot be read.
        """
        if self._table is not None and self._version is not None and self._is_same():
            with suppress(Exception):  # after any error the log is read from its beginning
                self._table.update()
                return self._table, identity.find_after(self._table, self._version)
        table = DeltaTable.load(self._location)
        return table, None if table is None else identity.find(table)

    def follow(self, committed: int) -> None:
        """Go on from the version that was committed, for the next batch of a stream.

        The snapshot begins anew if the table cannot be brought up to date.
        """
        try:
            table = self._table
            if table is None:
                table = DeltaTable.load(self._location)
            elif table.version < committed:
                table.update()
            if table is not None:
                self.begin(table)
        except Exception:  # the next batch loads the table
            self._table = self._version = self._entry = None

    def initial_table(self) -> DeltaTable | None:
        """Return the table as it was when the job began; None if a newer version is known.

        Its version may not be the newest. A commit to it fails then. Raises CommitError if it
        cannot be found out whether it is still the same table.
        """
        is_initial = self._table is not None and self._table.version == self._version
        if not is_initial or not self._is_same() or self._has_newer_checkpoint():
            return None
        return self._table

    def _has_newer_checkpoint(self) -> bool:
        """Return whether the log on a disk has a checkpoint of a newer version.

        The entry after ours may then be gone again, and another one in its place would be read by
        nobody. Elsewhere this would be one more request.
        """
        assert self._version is not None
        if not self._location.store.is_disk:
            return False
        with suppress(FileNotFoundError):
            content = self._location.child(f"{LOG}/_last_checkpoint").read_bytes()
            with suppress(ValueError, KeyError, TypeError):
                return int(json.loads(content)["version"]) > self._version
            return True  # it cannot be read, so the log is read from its beginning
        return False

    def _is_same(self) -> bool:
        return self._entry is not None and self._newest_entry() == self._entry

    def _newest_entry(self) -> FileVersion | None:
        """Return the file of the log entry that was the newest at first; None if it is gone."""
        assert self._version is not None
        entry = self._location.child(entry_name(self._version))
        with delta_errors(f"the Delta table {self._location.url} cannot be read"):
            info = run_interruptibly(entry.info)
        return FileVersion(info.size, info.mtime_ns) if info.is_file else None
