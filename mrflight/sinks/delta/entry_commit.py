"""Commits of which the log's entry is put there by us, and not by deltalake: where, and how."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import OutputError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.commit.commit_lease import CommitLock
from mrflight.sinks.delta.leased_entry import FencedEntry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.delta import TableWrite, first_entry, kept_metadata
from mrflight.storage.delta_entry import append_entry, has_whole_transactions, replacing_entry
from mrflight.storage.store import PutIfAbsentStore
from mrflight.system.deadlines import Deadline


class EntryCommit(msgspec.Struct, frozen=True):
    """What a commit makes of a table, if there is one."""

    location: Location
    table: DeltaTable | None
    schema: pa.Schema
    """Of the table once it is committed."""
    partition_by: list[str]

    def entry(self, mode: str, actions: list[Any], properties: Any) -> bytes:
        """The log's next entry. Raises what deltalake does, and OSError."""
        write = TableWrite(self.schema, actions, self.partition_by, properties)
        if self.table is None:
            return first_entry(self.location, write)
        if mode == "append":
            return append_entry(self.location, write)
        write = replace(write, metadata=kept_metadata(self.table.handle))
        keeps_schema = self._keeps_schema(self.table)
        return replacing_entry(self.location, self.table.version, write, keeps_schema=keeps_schema)

    def _keeps_schema(self, table: DeltaTable) -> bool:
        by = tuple(self.partition_by)
        return table.partition_by == by and bool(table.schema.equals(self.schema))


def puts_entries(location: Location, table: DeltaTable | None) -> bool:
    """Whether commits to a table there are made by entries of ours."""
    if location.store.lock_name(location.path) is not None:
        return True
    return table is not None and not has_whole_transactions()


def puts_appends(table: DeltaTable) -> bool:
    """Whether an append to it is put there by us though deltalake could commit it.

    It takes one request instead of six, if `PutIfAbsentStore.puts_log_entries` is set. deltalake
    makes a checkpoint right after its own commit, so a commit that needs one is left to it.
    """
    store = table.location.store
    is_cheaper = isinstance(store, PutIfAbsentStore) and store.puts_log_entries
    return is_cheaper and not table.is_checkpoint_due(table.version + 1)


def put_entry(
    entry: FencedEntry, lock: CommitLock | None, guard: CommitGuard, deadline: Deadline
) -> None:
    """Put it where there is none, in a turn at the lock where its store needs one.

    FileExistsError where another writer was faster, and what `FencedEntry.land` raises.
    """
    table = entry.table
    if (name := table.store.lock_name(table.path)) is not None:
        if lock is None:
            raise OutputError(f"{table.url}: nobody can commit there without a metadata server")
        with lock.acquire(name, deadline) as lease:
            entry.land(lease, guard, deadline)
        return
    store = table.store
    assert isinstance(store, PutIfAbsentStore)  # as all are but those that need a lock
    guard.commit_once(lambda: store.put_if_absent(entry.path, entry.content), deadline)
