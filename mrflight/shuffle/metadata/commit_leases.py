"""Commit leases: which job may commit to a table now, and what the last versions of a table are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mrflight.errors import LeaseHeldError, LeaseLostError, ProtocolError
from mrflight.shuffle.metadata.cluster_state import TableState, TableStates
from mrflight.shuffle.metadata.events import (
    CommitLeaseEnded,
    CommitLeaseGranted,
    VersionForgotten,
    VersionRecorded,
)
from mrflight.shuffle.metadata.journaled_cluster import JournaledCluster
from mrflight.shuffle.wire.lease_protocol import (
    MAX_LEASE_S,
    CommitLease,
    CorrectVersions,
    HeldLease,
    LeaseCommits,
    RecordedVersion,
    RecordVersion,
)
from mrflight.shuffle.wire.protocol import Done

log = logging.getLogger(__name__)


class CommitLeases:
    """The part of a `Registry` that serves tables, with a method for each of their actions.

    It uses the registry's lock, and is thread-safe. Every change is recorded before it takes
    effect, except renewals: after a restart of the metadata server, each lease has its full time
    again.
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

    def acquire(self, request: LeaseCommits) -> CommitLease:
        """Grant a lease, or renew the one with the ``number`` of the request.

        Raises LeaseHeldError while another holder has the lease, LeaseLostError if the lease to
        renew has ended, and ProtocolError if the request is not valid.
        """
        table, number = request.table, request.number
        if not table or not 0 < request.lease_s <= MAX_LEASE_S:
            raise ProtocolError(
                f"a commit lease must name a table and last up to {MAX_LEASE_S:g} s, "
                f"not {request.lease_s}"
            )
        with self._lock:
            self._expire()
            state = self._state(table)
            lease = state.lease
            if lease is not None and lease.holder == request.holder and number in (0, lease.number):
                lease.renewed_s = self._clock()
                lease.lease_s = request.lease_s
                number = lease.number
            elif number:
                raise LeaseLostError(f"lease {number} for commits to {table} has ended")
            elif lease is not None:
                raise LeaseHeldError(f"another job commits to {table} now")
            else:
                number = self._tables.last_number + 1
                granted = CommitLeaseGranted(table, number, request.holder, request.lease_s)
                self._cluster.apply(granted)
            return CommitLease(number, list(state.versions.values()))

    def release(self, request: HeldLease) -> Done:
        """End a lease, unless it has ended already."""
        with self._lock:
            if self._is_held(request):
                self._cluster.apply(CommitLeaseEnded(request.table, request.number))
            return Done()

    def correct(self, request: CorrectVersions) -> Done:
        """Replace the records of known versions by what the holder of the lease has found.

        A version without a digest is forgotten. Raises LeaseLostError if the lease has ended.
        """
        table = request.table
        with self._lock:
            self._check_held(request)
            for found in request.versions:
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
            return Done()

    def record(self, request: RecordVersion) -> RecordedVersion:
        """Record a committed version unless it was recorded before; return its first record.

        Raises LeaseLostError if the lease has ended. Then the job takes a new one, and learns from
        the answer which commit counts.
        """
        table, version, digest, job = request.table, request.version, request.digest, request.job
        if not table or not digest or version < 0:
            raise ProtocolError(f"version {version} of {table!r} is not valid or has no digest")
        with self._lock:
            self._check_held(request)
            known = self._state(table).versions.get(version)
            if known is None:
                self._cluster.apply(VersionRecorded(table, version, digest, job))
                return RecordedVersion(digest, job)
            if known.digest != digest:
                log.warning(
                    "jobs %s and %s both committed version %d of %s", known.job, job, version, table
                )
            return RecordedVersion(known.digest, known.job)

    def _state(self, table: str) -> TableState:
        return self._tables.by_name.get(table) or TableState()

    def _check_held(self, request: CorrectVersions | RecordVersion) -> None:
        """Raise LeaseLostError if the request's holder has not the lease of this number any more.

        The caller holds the lock.
        """
        self._expire()
        if not self._is_held(request):
            raise LeaseLostError(f"lease {request.number} for commits to {request.table} has ended")

    def _is_held(self, request: HeldLease | CorrectVersions | RecordVersion) -> bool:
        """Return whether the request's holder still has the lease of this number."""
        lease = self._state(request.table).lease
        return lease is not None and (lease.holder, lease.number) == (
            request.holder,
            request.number,
        )

    def _expire(self) -> None:
        now_s = self._clock()
        for table, state in list(self._tables.by_name.items()):
            if state.lease is not None and state.lease.has_expired(now_s):
                log.warning("the lease for commits to %s ends: it was not renewed", table)
                self._cluster.apply(CommitLeaseEnded(table, state.lease.number))
