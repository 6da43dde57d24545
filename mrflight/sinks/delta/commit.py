"""The commit of a job's part files as one version of a Delta table, once per identity.

Every commit is made with deltalake's own retries off. With retries, two runs that create the same
table both succeed, the second as version 1 with its own schema. A commit that loses the race for
its version is checked again, but deltalake looks for the application id of the winner only in the
versions since its own load. Without retries a commit either becomes the version right after the
one that was read, or fails. So the version is known before it is written, and can be the number of
the application transaction.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from mrflight.errors import CommitError
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.commit_guard import MAX_TRIES, random_backoff
from mrflight.sinks.delta.conflicts import describe_change
from mrflight.sinks.delta.entry_commit import (
    EntryCommit,
    put_entry,
    writes_own_appends,
    writes_own_entries,
)
from mrflight.sinks.delta.leased_entry import LeasedEntry
from mrflight.sinks.delta.output import DeltaOutput
from mrflight.sinks.delta.schema_evolution import add_columns, missing_columns
from mrflight.sinks.delta.synced_log import commit_synced, sync_before, sync_entry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.preflight import translate_refusal
from mrflight.sinks.parts.stored_type import has_ntz
from mrflight.storage.delta import (
    TableWrite,
    create_table,
    delta_errors,
    import_deltalake,
    kept_metadata,
)

if TYPE_CHECKING:  # jobs without a merge need not load it
    from mrflight.sinks.delta.merge_commit import Merge

MAX_LOG_READS = 30
"""The number of tries to read the log, to find out whether a commit that failed is in it."""

NTZ_FEATURE = "timestampNtz"


class CommittedVersion(NamedTuple):
    """The version in which a job is committed."""

    number: int
    paths: set[str] | None
    """The files that it added; None if the log does not tell."""


class DeltaCommit(msgspec.Struct, frozen=True):
    """A job's commit: the part files that it adds, and the files that a merge changes."""

    output: DeltaOutput
    commit: Commit
    """The parts, and the schema of their rows."""
    merge: Merge | None = None
    """The changes to other files of the table if the mode is merge."""

    def run(self) -> CommittedVersion:
        """Commit, and return the version, which another run of the job may have committed.

        Raises OutputError if the table has changed so that it does not accept the parts, or if
        this user may not commit to it. Raises CommitError if the store fails, if other writers
        were faster each time, or if their changes conflict with an overwrite.
        """
        failure: CommitError | None = None
        before: int | None = None
        for tries in range(MAX_TRIES):
            if tries > 1:  # the first try may have trusted the table that the job began with
                random_backoff()
            table, done = self._look_first() if failure is None else self._look_after(failure)
            if table is not None and done is not None:
                return self._find_added(table, done, before)
            if failure is not None and _version(table) == before:
                # No other writer was faster, so the store has failed.
                raise translate_refusal(failure) from failure.__cause__
            self.output.check(table, self.commit.schema)
            try:
                version = self._commit_to(table)
            except CommitError as error:
                failure, before = error, _version(table)
                continue
            if table is not None:
                self._check_covered(table, table.version, version)
            return CommittedVersion(version, self._paths())
        raise CommitError(
            f"{self._url}: other writers were faster {MAX_TRIES} times; run the job again"
        ) from failure

    @property
    def _url(self) -> str:
        return self.output.location.url

    def _look_first(self) -> tuple[DeltaTable | None, int | None]:
        """Return the table as it is now, and the version that the job has committed.

        No commit was tried yet, so a wait that is cut off leaves nothing committed.
        """
        return self.commit.deadline.run(
            self._look_or_trust, f"the Delta table {self._url} was loaded, with nothing committed"
        )

    def _look_or_trust(self) -> tuple[DeltaTable | None, int | None]:
        """Return the same, or the table that the job began with if a try is the cheapest look.

        A try that needs a lock has to wait for it, and an overwrite must know what it replaces.
        """
        location = self.output.location
        needs_lock = location.store.lock_name(location.path) is not None
        if self.output.mode in ("append", "merge") and not needs_lock:
            table = self.output.snapshot.initial_table()
            if table is not None:
                return table, None
        return self.output.refresh()

    def _look_after(self, failure: CommitError) -> tuple[DeltaTable | None, int | None]:
        """Return the same after a commit that failed, which may have taken effect all the same."""
        for _ in range(MAX_LOG_READS):
            try:
                return self.commit.deadline.run(
                    self.output.refresh,
                    f"{self._url} was loaded to find out whether the commit took effect",
                )
            except CommitError as error:
                unreadable = error
                random_backoff()
        raise CommitError(
            f"{failure}; and whether the commit took effect is not known, as {unreadable}; look "
            f"for {self.output.job_id} in the log before the job is run again (with a job.run_id "
            "it commits once in any case)"
        ) from failure

    def _find_added(self, table: DeltaTable, done: int, before: int | None) -> CommittedVersion:
        """Return the version ``done``, which may be our own after a failed commit."""
        sync_entry(table.location, table.version)
        paths = table.added_paths(self.output.identity.is_own, done)
        if before is not None and paths == self._paths():
            self._check_covered(table, before, self._version_after(table, before))
        return CommittedVersion(done, paths)

    def _commit_to(self, table: DeltaTable | None) -> int:
        """Commit to this version of the table; raise CommitError if it is not the newest."""
        if writes_own_entries(self.output.location, table):
            return self._put_entry(table)
        if table is None:
            return self._create(self._new_schema(), None)
        if self.output.mode == "append":
            self._add_columns(table)
            if writes_own_appends(table):
                version = self._put_entry(table)
                table.note_append(version)
                return version
        table.update_handle()
        if self.output.mode == "overwrite":
            return self._overwrite(table)
        if self.merge is not None:
            self.merge.prepare(table, self.commit.tasks)
        self._write(table, table.schema)
        return table.version + 1

    def _add_columns(self, table: DeltaTable) -> None:
        """Add the columns that the table lacks, in a version before that of the parts."""
        stored = self.output.to_stored(table, self.commit.schema)
        if fields := missing_columns(table, stored):
            table.update_handle()
            with delta_errors(f"the Delta table {self._url} did not take new columns"):
                add = partial(add_columns, table, fields, self.output.job_id)
                self.commit.deadline.run(
                    partial(commit_synced, table, add),
                    f"columns were added to {self._url}, with no rows committed",
                )

    def _put_entry(self, table: DeltaTable | None) -> int:
        """Do the same as `_commit_to` with a log entry that mrflight writes, not deltalake."""
        output = self.output
        output.check_no_new_columns(table, self.commit.schema)
        version = 0 if table is None else table.version + 1
        schema = table.schema if table and output.mode == "append" else self._new_schema()
        new = EntryCommit(output.location, table, schema, list(output.target.partition_by))
        with self._errors():
            content = new.encode(
                output.mode, self._actions(), self.output.identity.properties(version)
            )
            entry = LeasedEntry(output.location, version, content, output.job_id)
            self._sync_before(table)
            put_entry(entry, self.commit.lock, output.guard, self.commit.deadline)
        return version

    def _sync_before(self, table: DeltaTable | None) -> None:
        """Sync what the commit relies on: the names of its files, and the version before it."""
        sync_before(self.output.location, _version(table), self._paths(), self.commit.deadline)

    def _new_schema(self) -> pa.Schema:
        return self.output.to_stored(None, self.commit.schema)

    def _overwrite(self, table: DeltaTable) -> int:
        """Remove every file and add ours in one version, with the new schema.

        A transaction of a handle changes the schema, but neither the partition columns nor the
        features that the table requires of readers. After a first timestamp without zone no reader
        could open the table (deltalake 1.6). If one of these changes, the table is replaced, under
        its name and with its properties. For that deltalake loads the table once more, so commits
        of others in that moment are overwritten (see `_check_covered`), and the number of the
        transaction is then lower than the version.
        """
        schema = self._new_schema()
        needs_ntz = any(has_ntz(field.type) for field in schema)
        has_features = not needs_ntz or NTZ_FEATURE in table.features
        if has_features and table.partition_by == self.output.target.partition_by:
            self._write(table, schema)
            return table.version + 1
        return self._create(schema, table)

    def _version_after(self, table: DeltaTable, seen: int) -> int:
        """Return the version that committed the job after ``seen``, mostly the next one."""
        version = seen + 1
        while (actions := table.actions(version)) is not None:
            if self.output.identity.is_own(actions):
                return version
            version += 1
        return seen + 1  # the log is cleaned up as it is written, so this cannot be found out

    def _check_covered(self, table: DeltaTable, seen: int, version: int) -> None:
        """Raise CommitError if others changed something between ``seen`` and ``version``."""
        for other in range(seen + 1, version):
            if change := describe_change(table, other):
                raise CommitError(
                    f"{self._url}: this job is committed, as version {version}, and overwrote a "
                    f"change that it had not seen: another writer was faster by a moment "
                    f"({change}). Nothing is lost: the change can be read, or restored, as version "
                    f"{other}. Look at it before you run this job again"
                )

    def _paths(self) -> set[str]:
        return {part.path for part in self._added()}

    def _added(self) -> list[PartFile]:
        return [*self.commit.parts, *(self.merge.added if self.merge is not None else ())]

    def _write(self, table: DeltaTable, schema: pa.Schema) -> None:
        deltalake = import_deltalake()
        write = partial(
            table.handle.create_write_transaction,
            [*self._actions(), *self._removals()],
            "append" if self.output.mode == "merge" else self.output.mode,
            deltalake.Schema.from_arrow(schema),
            partition_by=list(self.output.target.partition_by),
            commit_properties=self.output.identity.properties(table.version + 1),
        )
        with self._errors():
            self._sync_before(table)
            self.output.guard.commit_once(
                partial(commit_synced, table, write), self.commit.deadline
            )

    def _create(self, schema: pa.Schema, table: DeltaTable | None) -> int:
        """Create the table, or replace all of it; return the version."""
        location, version = self.output.location, 0 if table is None else table.version + 1
        write = TableWrite(
            schema,
            self._actions(),
            list(self.output.target.partition_by),
            self.output.identity.properties(version),
            {} if table is None else kept_metadata(table.handle),
        )

        def create() -> int:
            create_table(location, write, "error" if table is None else "overwrite")
            committed = 0 if table is None else self._version_after(table, table.version)
            sync_entry(location, committed)
            return committed

        with self._errors():
            self._sync_before(table)
            return self.output.guard.commit_once(create, self.commit.deadline)

    def _errors(self) -> AbstractContextManager[None]:
        return delta_errors(f"the Delta table {self._url} did not take the commit")

    def _actions(self) -> list[Any]:
        deltalake = import_deltalake()
        now_ms = time.time_ns() // 1_000_000
        return [
            # deltalake encodes the path for the log, so it takes the path on the disk.
            deltalake.transaction.AddAction(
                part.path, part.size_bytes, part.partition_values, now_ms, True, part.stats
            )
            for part in self._added()
        ]

    def _removals(self) -> list[Any]:
        if self.merge is None:
            return []
        return self.merge.removals(self.output.target.partition_by, time.time_ns() // 1_000_000)


def _version(table: DeltaTable | None) -> int | None:
    return None if table is None else table.version
