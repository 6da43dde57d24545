"""Sends the frames of an event log from its owner to its replicas, each over one stream."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import (
    EventLogWriteError,
    LogOwnerChangedError,
    MrflightError,
    NoDataServersError,
    ServerUnavailableError,
)
from mrflight.shuffle.client.log_client import describe_log
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.log.durable_log import DurableLog
from mrflight.shuffle.log.frame import Frame, joined
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.log_protocol import (
    REPLICA_SCHEMA,
    AppendReceipt,
    ChangeLogMembers,
    LogMember,
    LogPlacement,
    ReplicaMode,
    replica_path,
)
from mrflight.shuffle.wire.protocol import MetadataAction, decode
from mrflight.units import format_count

from .membership import Membership

log = logging.getLogger(__name__)

CONFIRM_S = 10.0
"""How long a replica may take to sync one group. A disk that is slower holds up all producers."""
_FOLLOW_S = 7 * 24 * 3600.0
_COPY_S = 30.0
_COPY_BYTES_PER_S = 10 * 2**20


class Follower:
    """One stream to a replica, in a thread of its own: neither may hold up the log for ever."""

    def __init__(self, placement: LogPlacement, to: LogMember, membership: Membership) -> None:
        self.member = to
        self._sent: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: SimpleQueue[AppendReceipt | MrflightError] = SimpleQueue()
        self._placement = placement
        self._connections = Connections(membership.client)
        self._thread = threading.Thread(target=self._run, name="log replica", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Begin to send frames."""
        self._sent.put(data)

    def confirm(self, high: int) -> None:
        """Wait for the answer to the next send, or to the begin; raise MrflightError if it fails.

        After it the replica has the rows below ``high``.
        """
        try:
            answer = self._answers.get(timeout=CONFIRM_S)
        except Empty:
            raise ServerUnavailableError(
                f"the replica at {self.member.location} has not stored rows of event log "
                f"{self._placement.name!r} within {CONFIRM_S:g} s"
            ) from None
        if isinstance(answer, MrflightError):
            raise answer
        if answer.stop != high:
            raise LogOwnerChangedError(
                f"the replica at {self.member.location} of event log {self._placement.name!r} ends "
                f"at row {answer.stop}, and its owner at {high}"
            )

    def close(self) -> None:
        """End the stream, which may take until the replica answers."""
        self._sent.put(None)

    def _run(self) -> None:
        location, key = self.member.location, self._placement.key
        path = replica_path(key, self._placement.epoch, ReplicaMode.FOLLOW)
        options = flight.FlightCallOptions(timeout=_FOLLOW_S)
        try:
            with from_flight(location, f"replica of event log {key.id}"):
                client = self._connections.to(location)
                descriptor = flight.FlightDescriptor.for_path(*path)
                writer, reader = client.do_put(descriptor, REPLICA_SCHEMA, options)
                with writer:
                    self._answers.put(_receipt(reader))
                    while (data := self._sent.get()) is not None:
                        writer.write_batch(_message(data))
                        self._answers.put(_receipt(reader))
        except MrflightError as error:
            self._answers.put(error)
        finally:
            with suppress(MrflightError):
                self._connections.close()


class LogReplication:
    """The `Replication` of a log that this server owns in the epoch of a placement.

    A replica is followed from the moment at which it was given all of the log, or at which the log
    was empty. One that fails is no member any more before a row is acknowledged without it; then it
    or another server is given all of the log again. It is used by one thread.
    """

    def __init__(
        self, placement: LogPlacement, store: str, log: DurableLog, membership: Membership
    ) -> None:
        self._placement = placement
        self._store = store
        self._log = log
        self._membership = membership
        self._incarnation = membership.incarnation
        self._connections = Connections(membership.client)
        self._metadata = MetadataClient(
            membership.metadata_location,
            self._connections,
            membership.client.timeouts.reconnect_s,
        )
        self._followers: dict[str, Follower] = {}

    def is_owner(self) -> bool:
        """Return whether no other server can own the log by now.

        A log without replicas stays where its rows are.
        """
        return self._placement.replicas == 1 or (
            self.is_same_member() and self._membership.has_lease(self._placement.lease_s)
        )

    def is_same_member(self) -> bool:
        """Return whether this server has not been declared lost since it owns the log."""
        return self._membership.incarnation == self._incarnation

    def prepare(self) -> None:
        self._check_owner()
        if len(self._followers) + 1 < self._placement.replicas:
            self._complete()

    def send(self, frames: Sequence[Frame]) -> None:
        if self._followers:
            data = joined(frames)
            for follower in self._followers.values():
                follower.send(data)

    def confirm(self) -> None:
        for store, follower in list(self._followers.items()):
            try:
                follower.confirm(self._log.high)
            except MrflightError as error:
                self._lose(store, error)
        if len(self._followers) + 1 < self._placement.replicas:
            self._complete()
        self._check_owner()

    def close(self) -> None:
        """End the streams to the replicas."""
        for follower in self._followers.values():
            follower.close()
        self._connections.close()

    def _check_owner(self) -> None:
        if not self.is_owner():
            raise LogOwnerChangedError(
                f"event log {self._placement.name!r} may have another owner by now: this data "
                "server has not been heard by the metadata server in time"
            )

    def _complete(self) -> None:
        """Follow as many replicas as the log shall have; raise NoDataServersError if none is left.

        A member that is not followed may lack rows, or have others that were never acknowledged.
        """
        self._update(describe_log(self._metadata, self._placement.key))
        others = {each.store: each for each in self._placement.members if each.store != self._store}
        if not self._log.high:
            for store, member in others.items():
                if store not in self._followers and member.location:
                    self._try(self._follow, member)
        strange = [store for store in others if store not in self._followers]
        if strange:
            self._change(remove=strange)
        for spare in self._placement.spares:
            if len(self._followers) + 1 == self._placement.replicas:
                break
            self._try(self._join, spare)
        if len(self._followers) + 1 < self._placement.replicas:
            raise NoDataServersError(
                f"event log {self._placement.name!r} is on "
                f"{format_count(len(self._followers) + 1, 'data server')} of "
                f"{self._placement.replicas}, and no other can take a copy now; start one with "
                "--log-dir, or make room on its disk, and append again"
            )

    def _try(self, deed: Callable[[LogMember], None], member: LogMember) -> None:
        try:
            deed(member)
        except LogOwnerChangedError:
            raise
        except MrflightError as error:
            log.warning("event log %s: %s", self._placement.name, error)

    def _follow(self, member: LogMember) -> None:
        follower = Follower(self._placement, member, self._membership)
        try:
            follower.confirm(self._log.high)
        except MrflightError as error:
            follower.close()
            raise ServerUnavailableError(str(error)) from error
        self._followers[member.store] = follower

    def _join(self, spare: LogMember) -> None:
        """Give a server all of the log, and make it a member."""
        self._copy(spare)
        self._follow(spare)
        self._change(add=[spare.store])
        log.info("event log %s is on %s as well now", self._placement.name, spare.location)

    def _copy(self, spare: LogMember) -> None:
        path = replica_path(self._placement.key, self._placement.epoch, ReplicaMode.COPY)
        timeout_s = _COPY_S + self._log.size_bytes / _COPY_BYTES_PER_S
        options = flight.FlightCallOptions(timeout=timeout_s)
        with from_flight(spare.location, f"copy of event log {self._placement.name}"):
            client = self._connections.to(spare.location)
            descriptor = flight.FlightDescriptor.for_path(*path)
            writer, reader = client.do_put(descriptor, REPLICA_SCHEMA, options)
            with writer:
                for data in self._log.chunks():
                    writer.write_batch(_message(data))
                writer.done_writing()
                found = _receipt(reader)
        if self._log.high and found.stop != self._log.high:
            raise EventLogWriteError(
                f"{spare.location} has {found.stop} rows of event log {self._placement.name!r}, "
                f"not {self._log.high}"
            )

    def _lose(self, store: str, error: MrflightError) -> None:
        log.warning("event log %s loses a replica: %s", self._placement.name, error)
        self._followers.pop(store).close()
        self._connections.abandon()
        self._change(remove=[store])

    def _change(self, *, remove: Sequence[str] = (), add: Sequence[str] = ()) -> None:
        request = ChangeLogMembers(
            self._placement.name,
            self._placement.epoch,
            self._store,
            list(remove),
            list(add),
            self._placement.token,
        )
        action = MetadataAction.CHANGE_LOG_MEMBERS
        self._update(self._metadata.ask(action, request, LogPlacement))

    def _update(self, placement: LogPlacement) -> None:
        if (placement.owner, placement.epoch) != (self._store, self._placement.epoch):
            raise LogOwnerChangedError(
                f"event log {placement.name!r} is at epoch {placement.epoch}, and owned by "
                f"{placement.owner_location or 'a server that is gone'}"
            )
        self._placement = placement


def _message(data: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([data], pa.large_binary())], schema=REPLICA_SCHEMA)


def _receipt(reader: flight.FlightMetadataReader) -> AppendReceipt:
    body = reader.read()
    if body is None:
        raise flight.FlightInternalError("the stream has ended")
    return decode(memoryview(body), AppendReceipt)
