"""A job's table, loaded once and then followed by what is new in its log.

To load a table reads every entry of its log since the last checkpoint twice, and to look who has
committed once more (deltalake 1.6): on S3 that is all that an append costs but for five requests
of a job. So there is one handle from a job's beginning to its commit.
"""

from __future__ import annotations

from contextlib import suppress

from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.delta import delta_errors, entry_name
from mrflight.storage.store import FileVersion
from mrflight.system.signals import run_interruptibly


class Following:
    """What a job knows of its table, and of its own commit to it."""

    def __init__(self, location: Location, app_id: str) -> None:
        self._location = location
        self._app_id = app_id
        self._table: DeltaTable | None = None
        self._version: int | None = None
        self._entry: FileVersion | None = None

    def begin(self, table: DeltaTable) -> None:
        """Follow ``table``, to which ``app_id`` has committed nothing yet.

        The client goes on with a table that was removed, or made anew, as if nothing had happened:
        its new versions would be taken for ones of the other (deltalake 1.6). So the file of the
        newest entry is kept in mind, which nobody writes again. CommitError where it cannot be
        looked at.
        """
        self._table, self._version = table, table.version
        self._entry = self._newest_entry()

    def look(self) -> tuple[DeltaTable | None, int | None]:
        """The table as it is now, and the version that ``app_id`` has committed.

        CommitError where it cannot be read.
        """
        if self._table is not None and self._version is not None and self._is_same():
            with suppress(Exception):  # whatever it is: the log can be read from its beginning
                run_interruptibly(self._table.handle.update_incremental)
                return self._table, self._table.committed_after(self._version, self._app_id)
        table = DeltaTable.load(self._location)
        return table, None if table is None else table.committed_version(self._app_id)

    def as_begun(self) -> DeltaTable | None:
        """The table at the version that the job began with, if nothing newer is known.

        It may be the newest all the same: for a commit that fails where it is not. CommitError
        where nobody can tell whether it is the same table still.
        """
        is_known = self._table is not None and self._table.version == self._version
        return self._table if is_known and self._is_same() else None

    def _is_same(self) -> bool:
        return self._entry is not None and self._newest_entry() == self._entry

    def _newest_entry(self) -> FileVersion | None:
        """Of the entry that was the newest when it began; None where it is gone."""
        assert self._version is not None
        entry = self._location.child(entry_name(self._version))
        with delta_errors(f"the Delta table {self._location.url} cannot be read"):
            info = run_interruptibly(entry.info)
        return FileVersion(info.size, info.mtime_ns) if info.is_file else None
