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

from mrflight.errors import CommitError, LeaseHeldError, LeaseLostError, MrflightError
from mrflight.ids import new_writer_id
from mrflight.shuffle.client.lease_client import LeaseClient
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.lease_protocol import CommitLease, VersionRecord
from mrflight.sinks.commit.commit_guard import MAX_WAIT_S
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Deadline, Timeouts
from mrflight.system.retry import retry_with_backoff

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""Longer than a process is usually suspended. Others wait this long for a job that was killed."""
_RENEWALS = 3
"""How often a lease is renewed before it would expire."""


class LeaseHandle:
    """The lease that a job holds, as far as the job knows."""

    def __init__(self, client: LeaseClient, lease_s: float, lease: CommitLease) -> None:
        self._client = client
        self._lease_s = lease_s
        self._number = lease.number
        self.known = lease.versions
        """The last versions that were committed under the lock, as they should be in the log."""

    def check(self) -> None:
        """Renew the lease; raise LeaseLostError if it has expired."""
        self._client.lease(self._lease_s, self._number)

    def correct(self, versions: list[VersionRecord]) -> None:
        """Replace the server's records of these versions; raise LeaseLostError if it expired."""
        self._client.correct(self._number, versions)

    def record(self, version: VersionRecord) -> VersionRecord:
        """Record a committed version, and return the first record of it, which counts."""
        first = self._client.record(version)
        return VersionRecord(version.version, first.digest, first.job)

    def release(self) -> None:
        """Release the lease. If the server cannot be reached, the lease expires by itself."""
        try:
            self._client.release(self._number)
        except MrflightError as error:
            log.info("a lease for commits expires by itself: %s", error)


class CommitLock(msgspec.Struct, frozen=True):
    """Acquires leases for commits at a metadata server."""

    metadata: str
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    lease_s: float = LEASE_S

    @contextmanager
    def acquire(self, table: str, deadline: Deadline) -> Iterator[LeaseHandle]:
        """Wait for the lease of ``table``, a `Store.lock_name`; release it at the end.

        Raises CommitError if there is no lease within ten minutes or the server does not answer,
        and DeadlineExceededError.
        """
        holder, cancelled = new_writer_id(), threading.Event()
        with Connections(self.timeouts) as connections:
            client = self._client(table, holder, connections, cancelled)
            try:
                lease = deadline.run(
                    partial(self._wait, client, table, cancelled),
                    f"other jobs committed to {table}, with nothing committed",
                )
                handle = LeaseHandle(client, self.lease_s, lease)
                renewal = self._renewal(table, holder, lease.number, cancelled)
                renewal.start()
                try:
                    yield handle
                finally:
                    cancelled.set()
                    handle.release()
            finally:
                cancelled.set()

    def _wait(self, client: LeaseClient, table: str, cancelled: threading.Event) -> CommitLease:
        try:
            return retry_with_backoff(
                lambda: client.lease(self.lease_s),
                MAX_WAIT_S,
                (LeaseHeldError,),
                cancelled=cancelled,
            )
        except MrflightError as error:
            raise CommitError(
                f"{table}: nothing was committed, as the table's commit lock was not acquired: "
                f"{error}"
            ) from error

    def _client(
        self, table: str, holder: str, connections: Connections, cancelled: threading.Event
    ) -> LeaseClient:
        retry_for_s = self.timeouts.reconnect_s
        return LeaseClient(
            MetadataClient(self.metadata, connections, retry_for_s, cancelled), table, holder
        )

    def _renewal(
        self, table: str, holder: str, number: int, cancelled: threading.Event
    ) -> threading.Thread:
        def renew() -> None:
            with Connections(self.timeouts) as connections:
                client = self._client(table, holder, connections, cancelled)
                while not cancelled.wait(self.lease_s / _RENEWALS):
                    try:
                        client.lease(self.lease_s, number)
                    except LeaseLostError:
                        return  # the next call with the lease raises this as well
                    except MrflightError as error:
                        log.info("a lease for commits to %s is not renewed: %s", table, error)

        return threading.Thread(target=renew, name="lease", daemon=True)
