"""Commits whose log entry mrflight writes itself, without deltalake: when, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import OutputError
from mrflight.sinks.commit.commit_guard import CommitGuard
from mrflight.sinks.delta.leased_entry import LeasedEntry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.delta import TableWrite, first_entry, kept_metadata
from mrflight.storage.delta_entry import append_entry, has_whole_transactions, replacing_entry
from mrflight.storage.store import PutIfAbsentStore
from mrflight.system.deadlines import Deadline

if TYPE_CHECKING:  # only loaded where a commit needs a lock
    from mrflight.sinks.commit.commit_lease import CommitLock


class EntryCommit(msgspec.Struct, frozen=True):
    """A commit to a table, or the first commit of a new one."""

    location: Location
    table: DeltaTable | None
    schema: pa.Schema
    """The schema of the table after the commit."""
    partition_by: list[str]

    def encode(self, mode: str, actions: list[Any], properties: Any) -> bytes:
        """Return the log's next entry. Raises what deltalake raises, and OSError."""
        write = TableWrite(self.schema, actions, self.partition_by, properties)
        if self.table is None:
            return first_entry(self.location, write)
        if mode == "append":
            return append_entry(write)
        write = replace(write, metadata=kept_metadata(self.table.handle))
        keeps_schema = self._keeps_schema(self.table)
        return replacing_entry(self.location, self.table.version, write, keeps_schema=keeps_schema)

    def _keeps_schema(self, table: DeltaTable) -> bool:
        by = tuple(self.partition_by)
        return table.partition_by == by and bool(table.schema.equals(self.schema))


def writes_own_entries(location: Location, table: DeltaTable | None) -> bool:
    """Return whether mrflight writes the log entries of all commits to a table there."""
    if location.store.lock_name(location.path) is not None:
        return True
    return table is not None and not has_whole_transactions()


def writes_own_appends(table: DeltaTable) -> bool:
    """Return whether mrflight writes the log entry of an append that deltalake could commit.

    On a disk deltalake (1.6) lists the log three times for a commit, which takes longer with each
    of them, and with `PutIfAbsentStore.puts_log_entries` an entry of ours takes one request instead
    of six. deltalake makes a checkpoint right after its own commit, so a commit that needs one is
    left to it.
    """
    store = table.location.store
    is_cheaper = isinstance(store, PutIfAbsentStore) and (store.puts_log_entries or store.is_disk)
    return is_cheaper and not table.is_checkpoint_due(table.version + 1)


def put_entry(
    entry: LeasedEntry, lock: CommitLock | None, guard: CommitGuard, deadline: Deadline
) -> None:
    """Write the entry if its version does not exist, under the commit lock if its store needs one.

    Raises FileExistsError if another writer was faster, and what `LeasedEntry.commit` raises.
    """
    table = entry.table
    if (name := table.store.lock_name(table.path)) is not None:
        if lock is None:
            raise OutputError(f"{table.url}: a commit there needs a metadata server for its lock")
        with lock.acquire(name, deadline) as lease:
            entry.commit(lease, guard, deadline)
        return
    store = table.store
    assert isinstance(store, PutIfAbsentStore)  # every store without a lock is one
    guard.commit_once(lambda: store.put_if_absent(entry.path, entry.content), deadline)
