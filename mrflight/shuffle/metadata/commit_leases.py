"""Who may commit to a table now, and what its last versions are: the metadata server's side."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from mrflight.errors import LeaseHeldError, LeaseLostError, ProtocolError
from mrflight.shuffle.metadata.event_log import RecordedChanges
from mrflight.shuffle.metadata.events import (
    CommitLeaseEnded,
    CommitLeaseGiven,
    VersionForgotten,
    VersionRecorded,
)
from mrflight.shuffle.metadata.lease_state import Lease, TableState, TableStates
from mrflight.shuffle.wire.lease_protocol import MAX_LEASE_S, VersionRecord

log = logging.getLogger(__name__)


class TableFences:
    """The part of a `Registry` that is about tables, with its lock. Safe for many threads.

    Every change is recorded before it takes effect, but for renewals: after a restart a lease has
    all of its time again.
    """

    def __init__(
        self,
        now: TableStates,
        changes: RecordedChanges,
        lock: threading.Lock,
        clock: Callable[[], float],
    ) -> None:
        self._now = now
        self._changes = changes
        self._lock = lock
        self._clock = clock

    def lease(
        self, table: str, holder: str, lease_s: float, number: int = 0
    ) -> tuple[int, list[VersionRecord]]:
        """Give, or with its ``number`` renew, a lease: its number, and the versions that are known.

        LeaseHeldError while another holder has it; LeaseLostError for one that has ended;
        ProtocolError for what can be no lease.
        """
        if not table or not 0 < lease_s <= MAX_LEASE_S:
            raise ProtocolError(
                f"a lease for commits is of a table, for up to {MAX_LEASE_S:g} s, not {lease_s}"
            )
        with self._lock:
            self._expire()
            lease = self._state(table).lease
            if lease is not None and lease.holder == holder and number in (0, lease.number):
                lease.renewed_s = self._clock()
                lease.lease_s = lease_s
                return lease.number, self._versions(table)
            if number:
                raise LeaseLostError(f"lease {number} for commits to {table} has ended")
            if lease is not None:
                raise LeaseHeldError(f"another job commits to {table} now")
            number = self._now.last_number + 1
            self._changes.happen(CommitLeaseGiven(table, number, holder, lease_s))
            return number, self._versions(table)

    def release(self, table: str, holder: str, number: int) -> None:
        """End a lease; nothing is done where it has ended already."""
        with self._lock:
            if self._held(table, holder, number) is not None:
                self._changes.happen(CommitLeaseEnded(table, number))

    def correct(
        self, table: str, holder: str, number: int, versions: Sequence[VersionRecord]
    ) -> None:
        """Believe who has the lease what these versions are; LeaseLostError for others."""
        with self._lock:
            self._expire()
            if self._held(table, holder, number) is None:
                raise LeaseLostError(f"lease {number} for commits to {table} has ended")
            for found in versions:
                known = self._state(table).versions.get(found.version)
                if known is None or known.digest == found.digest:
                    continue
                if not found.digest:
                    self._changes.happen(VersionForgotten(table, found.version))
                    continue
                log.warning(
                    "version %d of %s is not what job %s committed", found.version, table, known.job
                )
                self._changes.happen(VersionRecorded(table, found.version, found.digest, found.job))

    def record(self, table: str, version: int, digest: str, job: str) -> VersionRecord:
        """What was recorded first of a version: this, unless something else was.

        With or without a lease: who had one, and wrote after its end, is to learn whom it replaced.
        """
        if not table or not digest or version < 0:
            raise ProtocolError(f"version {version} of {table!r} cannot be, or has no digest")
        with self._lock:
            known = self._state(table).versions.get(version)
            if known is None:
                known = VersionRecord(version, digest, job)
                self._changes.happen(VersionRecorded(table, version, digest, job))
            elif known.digest != digest:
                log.warning(
                    "jobs %s and %s both committed version %d of %s", known.job, job, version, table
                )
            return known

    def _state(self, table: str) -> TableState:
        return self._now.by_name.get(table) or TableState()

    def _versions(self, table: str) -> list[VersionRecord]:
        return list(self._state(table).versions.values())

    def _held(self, table: str, holder: str, number: int) -> Lease | None:
        lease = self._state(table).lease
        return (
            lease
            if lease is not None and (lease.holder, lease.number) == (holder, number)
            else None
        )

    def _expire(self) -> None:
        now_s = self._clock()
        for table, state in list(self._now.by_name.items()):
            if state.lease is not None and state.lease.is_over(now_s):
                log.warning("a lease for commits to %s ends: nobody has renewed it", table)
                self._changes.happen(CommitLeaseEnded(table, state.lease.number))
