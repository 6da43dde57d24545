"""Part files into one version of a Delta table, once per application id.

Everything is committed with deltalake's own retries off. With them on, two
runs that create the same table both succeed, the second as version 1 with its
own schema; a commit that lost the race to its version is checked again, but
for the application id of the winner only among the versions since its own
load. Off, a commit is the version right after the one that was looked at, or it
is not made. So the version is known before it is written, and can be the number
of the application transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.commit.base import LOCAL_TASKS, SinkTasks
from mrflight.sinks.commit.commit_guard import MAX_TRIES, CommitGuard, random_backoff
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.sinks.delta.conflicts import change_in, change_since
from mrflight.sinks.delta.entry_commit import EntryCommit, put_entry, puts_appends, puts_entries
from mrflight.sinks.delta.leased_entry import FencedEntry
from mrflight.sinks.delta.schema_evolution import add_columns, missing_columns
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.delta.table_snapshot import Following
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.preflight import translate_refusal
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.sinks.parts.stored_type import has_ntz
from mrflight.storage import Location
from mrflight.storage.delta import (
    TableWrite,
    create_table,
    delta_errors,
    import_deltalake,
    kept_metadata,
)
from mrflight.system.deadlines import NO_DEADLINE, Deadline

if TYPE_CHECKING:  # what other jobs need not load
    from mrflight.sinks.delta.merge_commit import Merge

LOOKS = 30
"""How often the log is read again to see whether a commit that failed is in it."""

NTZ_FEATURE = "timestampNtz"


class DeltaCommit(msgspec.Struct, frozen=True):
    """One commit: what is added to which table, and by whom."""

    location: Location
    mode: str
    target: TableSchema
    """Of the table as it was when the parts were written."""
    schema: pa.Schema
    """Of the result."""
    parts: Sequence[PartFile]
    app_id: str
    job_id: str
    guard: CommitGuard
    following: Following
    """Of the table, since the job looked at it when it began."""
    seen_version: int | None = None
    """Of the table that the job looked at when it began; None: there was none."""
    deadline: Deadline = NO_DEADLINE
    """Until when the store is waited for."""
    lock: CommitLock | None = None
    """For a store that needs one: see `Store.lock_name`."""
    merge: Merge | None = None
    """What of the table's files is changed as well, where the mode is merge."""
    tasks: SinkTasks = LOCAL_TASKS

    def run(self) -> tuple[int, set[str] | None]:
        """The version in which ``app_id`` is committed, and the files it added (None: unknown).

        They are another run's where that was faster. Raises OutputError where the table has
        changed so that it does not take the parts, or this user may not commit to it, CommitError
        where the store fails, other writers were faster each time, or what they wrote conflicts
        with an overwrite.
        """
        failure: CommitError | None = None
        before: int | None = None
        for tries in range(MAX_TRIES):
            if tries > 1:  # at first it may not have been looked for who was faster
                random_backoff()
            table, done = self._look_first() if failure is None else self._look_after(failure)
            if table is not None and done is not None:
                paths = table.added_paths(self.app_id, done)
                if before is not None and paths == self._paths():  # it had landed all the same
                    self._check_covered(table, before, self._version_after(table, before))
                return done, paths
            if failure is not None and _version(table) == before:
                # Nobody was faster: it is the store.
                raise translate_refusal(failure) from failure.__cause__
            self._check(table)
            try:
                version = self._commit_to(table)
            except CommitError as error:
                failure, before = error, _version(table)
                continue
            if table is not None:
                self._check_covered(table, table.version, version)
            return version, self._paths()
        raise CommitError(
            f"{self.location.url}: other writers were faster {MAX_TRIES} times; run the job again"
        ) from failure

    def _look_first(self) -> tuple[DeltaTable | None, int | None]:
        """The table as it is now, and the version that ``app_id`` has committed.

        Nothing was tried yet, so that it is known what a wait in vain leaves.
        """
        return self.deadline.run(
            self._look_or_trust,
            f"the Delta table {self.location.url} was loaded, with nothing committed",
        )

    def _look_or_trust(self) -> tuple[DeltaTable | None, int | None]:
        """The same, or what the job began with, where to try is the cheapest way to look.

        With a lock it takes a turn to try, and an overwrite has to know what it replaces.
        """
        needs_lock = self.location.store.lock_name(self.location.path) is not None
        if self.mode in ("append", "merge") and not needs_lock:
            table = self.following.as_begun()
            if table is not None:
                return table, None
        return self.following.look()

    def _look_after(self, failure: CommitError) -> tuple[DeltaTable | None, int | None]:
        """The same after a commit that failed, which may have landed all the same."""
        for _ in range(LOOKS):
            try:
                return self.deadline.run(
                    self.following.look,
                    f"{self.location.url} was loaded to see what came of its commit",
                )
            except CommitError as error:
                unreadable = error
                random_backoff()
        raise CommitError(
            f"{failure}; and whether the commit is there all the same is not known, as {unreadable}"
            f"; look for {self.job_id} in the log before the job is run again (with a job.run_id "
            "it commits once in any case)"
        ) from failure

    def _check(self, table: DeltaTable | None) -> None:
        """Raise what no other try would change."""
        if table is None:
            return
        if self.mode == "error":
            raise OutputError(
                f"{self.location.url} was created by someone else while the job ran; choose "
                "another table, or set output.mode to append or overwrite"
            )
        table.check_writable(self.mode)
        if self.mode in ("append", "merge"):
            self._check_append(table)
        elif change := change_since(table, self.seen_version):
            raise CommitError(
                f"{self.location.url}: another writer was faster ({change}), and overwriting would "
                "take away what this job has not seen; nothing was committed, run it again"
            )

    def _commit_to(self, table: DeltaTable | None) -> int:
        """Commit to this version of the table; CommitError where it is not the newest any more."""
        if puts_entries(self.location, table):
            return self._put_entry(table)
        if table is None:
            self._create(self._new_schema(), "error", 0)
            return 0
        if self.mode == "overwrite":
            return self._overwrite(table)
        if self.merge is not None:
            self.merge.at(table, self.tasks)
        else:
            self._add_columns(table)
            if puts_appends(table):
                return self._put_entry(table)
        self._write(table, table.schema)
        return table.version + 1

    def _add_columns(self, table: DeltaTable) -> None:
        """Give the table the columns that the parts have and it has not, in a version before."""
        stored = self._stored_in(table)
        if fields := missing_columns(table.schema, stored):
            with delta_errors(f"the Delta table {self.location.url} did not take new columns"):
                self.deadline.run(
                    partial(add_columns, table, fields, self.job_id),
                    f"columns were added to {self.location.url}, with no rows committed",
                )

    def _check_no_new_columns(self, table: DeltaTable | None) -> None:
        """OutputError where an entry of ours would name files with columns that nobody sees.

        That is refused when a job begins, unless somebody makes the table only later.
        """
        if table is None or not self.target.evolves:
            return
        if new := [f.name for f in missing_columns(table.schema, self._stored_in(table))]:
            raise OutputError(
                f"{self.location.url} has no column {new[0]!r}, which the result has, and with "
                "hops-deltalake none is added: ALTER TABLE ... ADD COLUMNS first, or drop it in "
                "the map"
            )

    def _stored_in(self, table: DeltaTable) -> pa.Schema:
        """What the parts are as rows of this table; OutputError where they do not fit."""
        return replace(self.target, existing=table.schema).to_stored(self.schema)

    def _put_entry(self, table: DeltaTable | None) -> int:
        """As `_commit_to`, where the log's entry is put there by us and not by deltalake."""
        self._check_no_new_columns(table)
        version = 0 if table is None else table.version + 1
        schema = table.schema if table and self.mode == "append" else self._new_schema()
        new = EntryCommit(self.location, table, schema, list(self.target.partition_by))
        with self._errors():
            content = new.entry(self.mode, self._actions(), self._properties(version))
            entry = FencedEntry(self.location, version, content, self.job_id)
            put_entry(entry, self.lock, self.guard, self.deadline)
        return version

    def _new_schema(self) -> pa.Schema:
        return replace(self.target, existing=None).to_stored(self.schema)

    def _check_append(self, table: DeltaTable) -> None:
        """OutputError where the parts do not fit the table, should it have changed since."""
        table.check_partition_by(self.target.partition_by, self.target.operation)
        self._stored_in(table)
        known = self.target.existing
        for column in table.schema:
            if not column.nullable and _was_nullable(known, column.name):
                raise OutputError(
                    f"{self.location.url}: column {column.name!r} became NOT NULL while the job "
                    "ran; run it again"
                )

    def _overwrite(self, table: DeltaTable) -> int:
        """Remove every file and add ours in one version, with the new schema.

        A handle's transaction changes the schema, but neither the partition columns nor the
        features that the table asks of readers: a first timestamp without zone would leave a
        table that nobody can open (deltalake 1.6). Where those change the table is replaced,
        under its name and with its properties. That loads the table once more: what
        others commit in that moment is overwritten (see `_check_covered`), and then the number of
        the transaction is not that of the version but one before it.
        """
        schema = self._new_schema()
        needs_ntz = any(has_ntz(field.type) for field in schema)
        has_features = not needs_ntz or NTZ_FEATURE in table.features
        if has_features and table.partition_by == self.target.partition_by:
            self._write(table, schema)
            return table.version + 1
        self._create(schema, "overwrite", table.version + 1, kept_metadata(table.handle))
        return self._version_after(table, table.version)

    def _version_after(self, table: DeltaTable, seen: int) -> int:
        """The version of a commit that replaced ``seen``, or one that came right after it."""
        version = seen + 1
        while (actions := table.actions(version)) is not None:
            if any(action.get("txn", {}).get("appId") == self.app_id for action in actions):
                return version
            version += 1
        return seen + 1  # a log that is cleaned up as it is written: nobody can tell

    def _check_covered(self, table: DeltaTable, seen: int, version: int) -> None:
        """CommitError where others changed something after ``seen``, which ``version`` replaced."""
        for other in range(seen + 1, version):
            if change := change_in(table, other):
                raise CommitError(
                    f"{self.location.url}: this job is committed, as version {version}, and "
                    f"overwrote what it had not seen: another writer was faster ({change}) by a "
                    "moment. Nothing of that is lost: it can be read, or restored, as version "
                    f"{other}. Do not run this job again before you have looked"
                )

    def _paths(self) -> set[str]:
        return {part.path for part in self._added()}

    def _added(self) -> list[PartFile]:
        return [*self.parts, *(self.merge.added if self.merge is not None else ())]

    def _write(self, table: DeltaTable, schema: pa.Schema) -> None:
        deltalake = import_deltalake()
        write = partial(
            table.handle.create_write_transaction,
            [*self._actions(), *self._removals()],
            "append" if self.mode == "merge" else self.mode,
            deltalake.Schema.from_arrow(schema),
            partition_by=list(self.target.partition_by),
            commit_properties=self._properties(table.version + 1),
        )
        with self._errors():
            self.guard.commit_once(write, self.deadline)

    def _create(
        self, schema: pa.Schema, mode: str, version: int, metadata: dict[str, Any] | None = None
    ) -> None:
        write = TableWrite(
            schema,
            self._actions(),
            list(self.target.partition_by),
            self._properties(version),
            metadata or {},
        )
        create = partial(create_table, self.location, write, mode)
        with self._errors():
            self.guard.commit_once(create, self.deadline)

    def _errors(self) -> AbstractContextManager[None]:
        return delta_errors(f"the Delta table {self.location.url} did not take the commit")

    def _actions(self) -> list[Any]:
        deltalake = import_deltalake()
        now_ms = time.time_ns() // 1_000_000
        return [
            # deltalake encodes the path for the log, so it takes the one that the disk has.
            deltalake.transaction.AddAction(
                part.path, part.size_bytes, part.partition_values, now_ms, True, part.stats
            )
            for part in self._added()
        ]

    def _removals(self) -> list[Any]:
        if self.merge is None:
            return []
        return self.merge.removed(self.target.partition_by, time.time_ns() // 1_000_000)

    def _properties(self, version: int) -> Any:
        deltalake = import_deltalake()
        return deltalake.CommitProperties(
            custom_metadata={"mrflightJob": self.job_id},
            max_commit_retries=0,
            app_transactions=[deltalake.Transaction(self.app_id, version, time.time_ns() // 10**6)],
        )


def _was_nullable(known: pa.Schema | None, column: str) -> bool:
    """Whether a column that is in the table now was nullable, or not there, before."""
    return known is None or column not in known.names or bool(known.field(column).nullable)


def _version(table: DeltaTable | None) -> int | None:
    return None if table is None else table.version
