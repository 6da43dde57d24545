"""The commit lock of a table in a store that cannot tell which of two writers came first.

The lock is a lease at a metadata server, which is renewed while the job commits. It does not keep
out other programs, nor jobs that ask another metadata server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from mrflight.config.identity import ClientOptions
from mrflight.errors import CommitError, LeaseHeldError, LeaseLostError, MrflightError
from mrflight.ids import new_writer_id
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.lease_protocol import (
    CommitLease,
    CorrectVersions,
    HeldLease,
    LeaseCommits,
    RecordedVersion,
    RecordVersion,
    VersionRecord,
)
from mrflight.shuffle.wire.protocol import Done, MetadataAction
from mrflight.sinks.commit.commit_guard import MAX_WAIT_S
from mrflight.system.deadlines import Deadline
from mrflight.system.retry import retry_with_backoff

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""Longer than a process is usually suspended. Others wait this long for a job that was killed."""
_RENEWALS = 3
"""The number of renewals of a lease before it would expire."""


class LeaseHandle:
    """A job's lease of one table at a metadata server. Every request may be repeated."""

    def __init__(
        self,
        metadata: MetadataClient,
        table: str,
        holder: str,
        lease_s: float,
        cancelled: threading.Event,
    ) -> None:
        self._metadata = metadata
        self._table = table
        self._cancelled = cancelled
        self._holder = holder
        self._lease_s = lease_s
        self.number = 0
        """The number of the lease; 0 as long as the job has none."""
        self.known: list[VersionRecord] = []
        """The last versions that were committed under the lock, as they should be in the log."""

    def take(self) -> None:
        """Take the lease; raise LeaseHeldError while another job has it."""
        lease = self._lease()
        self.number, self.known = lease.number, lease.versions

    def wait(self) -> None:
        """Take the lease when no other job has it; raise LeaseHeldError after ten minutes."""
        retry_with_backoff(self.take, MAX_WAIT_S, (LeaseHeldError,), cancelled=self._cancelled)

    def renew(self) -> None:
        """Renew the lease; raise LeaseLostError if it has expired."""
        self._lease()

    def _lease(self) -> CommitLease:
        request = LeaseCommits(self._table, self._holder, self._lease_s, self.number)
        return self._metadata.ask(MetadataAction.LEASE_COMMITS, request, CommitLease)

    def correct(self, versions: list[VersionRecord]) -> None:
        """Replace the server's records of these versions; one without a digest is forgotten.

        Raises LeaseLostError if the lease has expired.
        """
        request = CorrectVersions(self._table, self._holder, self.number, versions)
        self._metadata.ask(MetadataAction.CORRECT_VERSIONS, request, Done)

    def record(self, version: VersionRecord) -> RecordedVersion:
        """Record a committed version, and return the first record of it, which counts.

        Only the holder may. So a job whose lease has expired waits for another one first, and then
        learns what others have recorded meanwhile.
        """
        try:
            return self._record(version)
        except LeaseLostError:
            self.number = 0
            self.wait()
            return self._record(version)

    def _record(self, version: VersionRecord) -> RecordedVersion:
        request = RecordVersion(
            self._table, self._holder, self.number, version.version, version.digest, version.job
        )
        return self._metadata.ask(MetadataAction.RECORD_VERSION, request, RecordedVersion)

    def release(self) -> None:
        """Release the lease. If the server cannot be reached, the lease expires by itself."""
        request = HeldLease(self._table, self._holder, self.number)
        try:
            self._metadata.ask(MetadataAction.RELEASE_COMMITS, request, Done)
        except MrflightError as error:
            log.info("the commit lease of %s is not released, and expires: %s", self._table, error)


class CommitLock(msgspec.Struct, frozen=True):
    """Acquires leases for commits at a metadata server."""

    metadata: str
    client: ClientOptions = ClientOptions()
    lease_s: float = LEASE_S

    @contextmanager
    def acquire(self, table: str, deadline: Deadline) -> Iterator[LeaseHandle]:
        """Wait for the lease of ``table``, a `Store.lock_name`; release it at the end.

        Raises CommitError if there is no lease within ten minutes or the server does not answer,
        and DeadlineExceededError.
        """
        holder, cancelled = new_writer_id(), threading.Event()
        with Connections(self.client) as connections:
            lease = self._handle(table, holder, connections, cancelled)
            try:
                deadline.run(
                    partial(self._wait, lease, table),
                    f"other jobs committed to {table}, with nothing committed",
                )
                renewal = self._renewal(table, holder, lease.number, cancelled)
                renewal.start()
                try:
                    yield lease
                finally:
                    cancelled.set()
                    lease.release()
            finally:
                cancelled.set()

    def _wait(self, lease: LeaseHandle, table: str) -> None:
        try:
            lease.wait()
        except MrflightError as error:
            raise CommitError(
                f"{table}: nothing was committed, as the table's commit lock was not acquired: "
                f"{error}"
            ) from error

    def _handle(
        self, table: str, holder: str, connections: Connections, cancelled: threading.Event
    ) -> LeaseHandle:
        retry_for_s = self.client.timeouts.reconnect_s
        metadata = MetadataClient(self.metadata, connections, retry_for_s, cancelled)
        return LeaseHandle(metadata, table, holder, self.lease_s, cancelled)

    def _renewal(
        self, table: str, holder: str, number: int, cancelled: threading.Event
    ) -> threading.Thread:
        def renew() -> None:
            with Connections(self.client) as connections:
                lease = self._handle(table, holder, connections, cancelled)
                lease.number = number
                while not cancelled.wait(self.lease_s / _RENEWALS):
                    try:
                        lease.renew()
                    except LeaseLostError:
                        return  # the next request with the lease raises this as well
                    except MrflightError as error:
                        log.info("the commit lease of %s is not renewed: %s", table, error)

        return threading.Thread(target=renew, name="lease", daemon=True)
