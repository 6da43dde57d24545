"""A job's turn to commit to a table in a store that cannot tell who of two was first.

The turn is a lease at a metadata server, asked for again as long as it lasts. Jobs that ask
another metadata server, and other programs, are not kept away by it.
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
"""Longer than a process usually stands still; others wait so long for one that was killed."""
_RENEWALS = 3
"""In the time of a lease."""


class LeaseHandle:
    """The lease that a job has, as far as it knows."""

    def __init__(self, client: LeaseClient, lease_s: float, lease: CommitLease) -> None:
        self._client = client
        self._lease_s = lease_s
        self._number = lease.number
        self.known = lease.versions
        """The last versions that were committed by turns, as they are to be found."""

    def check(self) -> None:
        """LeaseLostError where it is over; if not, it has all of its time again."""
        self._client.lease(self._lease_s, self._number)

    def correct(self, versions: list[VersionRecord]) -> None:
        """Tell what versions are that are not what was known; LeaseLostError."""
        self._client.correct(self._number, versions)

    def record(self, version: VersionRecord) -> VersionRecord:
        """Tell what was committed; what counts is what was told first of that version."""
        first = self._client.record(version)
        return VersionRecord(version.version, first.digest, first.job)

    def release(self) -> None:
        """Let the next one have it; where that cannot be told, it ends by itself."""
        try:
            self._client.release(self._number)
        except MrflightError as error:
            log.info("a lease for commits ends by itself: %s", error)


class CommitLock(msgspec.Struct, frozen=True):
    """Where turns are given: a metadata server."""

    metadata: str
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    lease_s: float = LEASE_S

    @contextmanager
    def acquire(self, table: str, deadline: Deadline) -> Iterator[LeaseHandle]:
        """Wait for a turn to commit to ``table``, by its name at the lock, and end it after that.

        CommitError where there is none within ten minutes, or nobody to ask; DeadlineExceededError.
        """
        holder, cancelled = new_writer_id(), threading.Event()
        with Connections(self.timeouts) as connections:
            client = self._client(table, holder, connections, cancelled)
            try:
                lease = deadline.run(
                    partial(self._wait, client, table, cancelled),
                    f"other jobs committed to {table}, with nothing committed",
                )
                turn = LeaseHandle(client, self.lease_s, lease)
                renewal = self._renewal(table, holder, lease.number, cancelled)
                renewal.start()
                try:
                    yield turn
                finally:
                    cancelled.set()
                    turn.release()
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
                f"{table}: nothing was committed, as there was no turn for it: {error}"
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
                        return  # who has it finds out
                    except MrflightError as error:
                        log.info("a lease for commits to %s is not renewed: %s", table, error)

        return threading.Thread(target=renew, name="lease", daemon=True)
