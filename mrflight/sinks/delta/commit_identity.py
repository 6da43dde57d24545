"""How a commit of ours is recognised in the log of a Delta table."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrflight.errors import StreamMovedError
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.delta.recorded_offsets import RecordedOffsets, app_id
from mrflight.sinks.delta.recorded_runs import find_run, find_run_after, transaction_number
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage.delta import import_deltalake

Actions = Sequence[Mapping[str, Any]]
"""The actions of one log entry."""

_JOB = "mrflightJob"
_STREAM = "mrflightStream"


class CommitIdentity(ABC):
    """What a commit leaves in the log, so that it counts once and is found again."""

    @abstractmethod
    def find(self, table: DeltaTable) -> int | None:
        """Return the version that has the commit, or one before it; None if there is none.

        Raises CommitError if the log cannot be read.
        """

    def find_logged(self, table: DeltaTable) -> int | None:
        """Do as `find`, also for a commit that a RESTORE has undone."""
        return self.find(table)

    @abstractmethod
    def find_after(self, table: DeltaTable, version: int) -> int | None:
        """Do as `find` for a commit that was not in the log up to ``version``.

        This reads only the entries after ``version``.
        """

    def check(self, table: DeltaTable | None) -> None:
        """Raise CommitError if the commit must not be made on top of this version."""
        return

    @abstractmethod
    def is_own(self, actions: Actions) -> bool:
        """Return whether this entry of the log is the commit."""

    @abstractmethod
    def properties(self, version: int) -> Any:
        """Return the `deltalake.CommitProperties` of the commit as this version."""


@dataclass(frozen=True)
class RunIdentity(CommitIdentity):
    """A job's commit, which one application transaction stands for.

    That of a ``run_id`` has no ``lastUpdated``, for the reason that `StreamIdentity` tells: a rerun
    after ``delta.setTransactionRetentionDuration`` would commit its rows again. That of a job
    without one is not asked for after the job, and may expire.
    """

    app_id: str
    job_id: str

    @classmethod
    def of(cls, job_id: str, app_id: str | None = None) -> RunIdentity:
        """Return the identity of a job; ``app_id`` stands for its ``run_id``, None without one."""
        return cls(app_id or _unnamed(job_id), job_id)

    def find(self, table: DeltaTable) -> int | None:
        return find_run(table, self.app_id)

    def find_logged(self, table: DeltaTable) -> int | None:
        return transaction_number(table, self.app_id)

    def find_after(self, table: DeltaTable, version: int) -> int | None:
        return find_run_after(table, version, self.app_id)

    def is_own(self, actions: Actions) -> bool:
        return any(action.get("txn", {}).get("appId") == self.app_id for action in actions)

    def properties(self, version: int) -> Any:
        deltalake = import_deltalake()
        may_expire = self.app_id == _unnamed(self.job_id)
        updated_ms = time.time_ns() // 1_000_000 if may_expire else None
        return deltalake.CommitProperties(
            custom_metadata={_JOB: self.job_id},
            max_commit_retries=0,
            app_transactions=[deltalake.Transaction(self.app_id, version, updated_ms)],
        )


@dataclass(frozen=True)
class StreamIdentity(CommitIdentity):
    """The commit of a stream's batch, with an application transaction for each partition.

    The number of a transaction is the next offset of its partition. The transactions have no
    ``lastUpdated``: with it, and with ``delta.setTransactionRetentionDuration``, that of an idle
    partition would expire, and the partition would be read from its beginning again.
    """

    job_id: str
    offsets: StreamOffsets
    recorded: RecordedOffsets
    since: int
    """The version of the table when the batch began; -1 if there was no table."""

    def find(self, table: DeltaTable) -> int | None:
        return self.find_after(table, self.since)

    def find_after(self, table: DeltaTable, version: int) -> int | None:
        for newer in range(max(version, self.since) + 1, table.version + 1):
            if self.is_own(table.logged_actions(newer)):
                return newer
        return None

    def is_own(self, actions: Actions) -> bool:
        notes = (action.get("commitInfo", {}) for action in actions)
        return any(note.get(_JOB) == self.job_id and _STREAM in note for note in notes)

    def check(self, table: DeltaTable | None) -> None:
        """Raise StreamMovedError if the table has other offsets than the batch begins with."""
        recorded = {} if table is None else self.recorded.at(table)
        moved = [
            partition
            for partition in self.offsets.after
            if recorded.get(partition) != self.offsets.before.get(partition)
        ]
        if moved:
            raise self._moved(moved[0], recorded.get(moved[0]))

    def properties(self, version: int) -> Any:
        deltalake = import_deltalake()
        changed = {
            partition: after
            for partition, after in self.offsets.after.items()
            if after != self.offsets.before.get(partition)
        }
        return deltalake.CommitProperties(
            custom_metadata={_JOB: self.job_id, _STREAM: json.dumps(self.offsets.note())},
            max_commit_retries=0,
            app_transactions=[
                deltalake.Transaction(app_id(self.offsets.stream, partition), after)
                for partition, after in changed.items()
            ],
        )

    def _moved(self, partition: str, recorded: int | None) -> StreamMovedError:
        before = self.offsets.before.get(partition)
        return StreamMovedError(
            f"stream {self.offsets.stream!r} was moved on by another writer: of {partition} the "
            f"table has {'no offset' if recorded is None else f'next offset {recorded}'}, and the "
            f"batch expects {'none' if before is None else before}; nothing of it was committed"
        )


def _unnamed(job_id: str) -> str:
    """Return the application id of a job without a ``run_id``."""
    return f"mrflight-{job_id}"
