"""Commit leases: which job may commit to a table now, and what the last versions of a table are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from mrflight.errors import LeaseHeldError, LeaseLostError, ProtocolError
from mrflight.shuffle.metadata.cluster_state import Lease, TableState, TableStates
from mrflight.shuffle.metadata.events import (
    CommitLeaseEnded,
    CommitLeaseGranted,
    VersionForgotten,
    VersionRecorded,
)
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from mrflight.shuffle.wire.lease_protocol import MAX_LEASE_S, VersionRecord

log = logging.getLogger(__name__)


class CommitLeases:
    """The part of a `Registry` that serves tables; it uses the registry's lock. Thread-safe.

    Every change is recorded before it takes effect, except renewals: after a restart of the
    metadata server, each lease has its full time again.
    """

    def __init__(
        self,
        tables: TableStates,
        cluster: JournaledCluster,
        lock: threading.Lock,
        clock: Callable[[], float],
    ) -> None:
        self._tables = tables
        self._cluster = cluster
        self._lock = lock
        self._clock = clock

    def acquire(
        self, table: str, holder: str, lease_s: float, number: int = 0
    ) -> tuple[int, list[VersionRecord]]:
        """Grant a lease, or renew the one with this ``number``.

        Returns the number of the lease and the recorded versions of the table. Raises
        LeaseHeldError while another holder has the lease, LeaseLostError if the lease to renew has
        ended, and ProtocolError if the request is not valid.
        """
        if not table or not 0 < lease_s <= MAX_LEASE_S:
            raise ProtocolError(
                f"a commit lease must name a table and last up to {MAX_LEASE_S:g} s, not {lease_s}"
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
            number = self._tables.last_number + 1
            self._cluster.apply(CommitLeaseGranted(table, number, holder, lease_s))
            return number, self._versions(table)

    def release(self, table: str, holder: str, number: int) -> None:
        """End a lease, unless it has ended already."""
        with self._lock:
            if self._held(table, holder, number) is not None:
                self._cluster.apply(CommitLeaseEnded(table, number))

    def correct(
        self, table: str, holder: str, number: int, versions: Sequence[VersionRecord]
    ) -> None:
        """Replace the records of known versions by what the holder of the lease has found.

        A version without a digest is forgotten. Raises LeaseLostError if the lease has ended.
        """
        with self._lock:
            self._expire()
            if self._held(table, holder, number) is None:
                raise LeaseLostError(f"lease {number} for commits to {table} has ended")
            for found in versions:
                known = self._state(table).versions.get(found.version)
                if known is None or known.digest == found.digest:
                    continue
                if not found.digest:
                    self._cluster.apply(VersionForgotten(table, found.version))
                    continue
                log.warning(
                    "version %d of %s is not what job %s committed", found.version, table, known.job
                )
                self._cluster.apply(VersionRecorded(table, found.version, found.digest, found.job))

    def record(self, table: str, version: int, digest: str, job: str) -> VersionRecord:
        """Record a committed version unless it was recorded before; return its first record.

        No lease is required: a job that wrote after the end of its lease learns from the answer
        which commit counts.
        """
        if not table or not digest or version < 0:
            raise ProtocolError(f"version {version} of {table!r} is not valid or has no digest")
        with self._lock:
            known = self._state(table).versions.get(version)
            if known is None:
                known = VersionRecord(version, digest, job)
                self._cluster.apply(VersionRecorded(table, version, digest, job))
            elif known.digest != digest:
                log.warning(
                    "jobs %s and %s both committed version %d of %s", known.job, job, version, table
                )
            return known

    def _state(self, table: str) -> TableState:
        return self._tables.by_name.get(table) or TableState()

    def _versions(self, table: str) -> list[VersionRecord]:
        return list(self._state(table).versions.values())

    def _held(self, table: str, holder: str, number: int) -> Lease | None:
        """Return the lease if it has this number and holder."""
        lease = self._state(table).lease
        if lease is None or (lease.holder, lease.number) != (holder, number):
            return None
        return lease

    def _expire(self) -> None:
        now_s = self._clock()
        for table, state in list(self._tables.by_name.items()):
            if state.lease is not None and state.lease.has_expired(now_s):
                log.warning("the lease for commits to %s ends: it was not renewed", table)
                self._cluster.apply(CommitLeaseEnded(table, state.lease.number))
