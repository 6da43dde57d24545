"""What clients ask of event logs: to create, find, read, trim and drop them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import flight

from mrflight.config.identity import ClientOptions
from mrflight.config.secret_reference import is_reference, resolve
from mrflight.errors import (
    DeadlineExceededError,
    EventLogNotFoundError,
    IncompletePartitionError,
    LogOwnerChangedError,
    MrflightError,
    ServerUnavailableError,
)
from mrflight.ids import ShuffleKey, new_token
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.log_protocol import (
    MAX_OFFSET,
    CreateLog,
    LogName,
    LogPlacement,
    LogRead,
    LogState,
    LogStateRequest,
    PinLog,
    RowsTag,
    TrimLog,
    Trimmed,
)
from mrflight.shuffle.wire.log_rights import LogId
from mrflight.shuffle.wire.protocol import DataAction, Done, MetadataAction, decode
from mrflight.system.closeable import Closeable
from mrflight.system.retry import retry_with_backoff

T = TypeVar("T")

ELSEWHERE = (ServerUnavailableError, DeadlineExceededError, LogOwnerChangedError)
"""Errors after which a client asks where the log is now, and calls again."""


class LogRows(NamedTuple):
    """Rows of an event log, and the offset of the first of them."""

    start: int
    rows: pa.RecordBatch

    @property
    def stop(self) -> int:
        """The offset behind the last row."""
        return self.start + int(self.rows.num_rows)


def parse_handle(text: str, key: str) -> ShuffleKey:
    """Return the log that a handle names, which is a name, ``name:token`` or a reference to those.

    ``key`` is the key of the job file that has it. Raises JobFileError and ProtocolError.
    """
    return ShuffleKey.parse(resolve(text, key) if is_reference(text) else text)


def describe_log(metadata: MetadataClient, key: ShuffleKey) -> LogPlacement:
    """Return where a log is; raise EventLogNotFoundError if there is none."""
    return metadata.ask(MetadataAction.DESCRIBE_LOG, LogName(*key), LogPlacement)


class LogClient(Closeable):
    """Calls the servers of one cluster for its event logs. Not safe for several threads.

    A call that cannot reach the owner of a log is repeated for ``timeouts.reconnect_s``, as
    another server may be about to own it.
    """

    def __init__(self, location: str, client: ClientOptions) -> None:
        self._handles = client.logs
        self._connections = Connections(client)
        self._metadata = MetadataClient(location, self._connections, client.timeouts.reconnect_s)

    def create(self, name: str, replicas: int, token: str = "") -> LogPlacement:
        """Create a log; a repeated call with the same token returns the same log."""
        request = CreateLog(name, replicas, token or new_token())
        return self._metadata.ask(MetadataAction.CREATE_LOG, request, LogPlacement)

    def describe(self, key: ShuffleKey) -> LogPlacement:
        """Return where a log is."""
        return describe_log(self._metadata, self._with_token(key))

    def find(self, log: LogId) -> ShuffleKey:
        """Return the key of a log by its id; raise EventLogNotFoundError if it is gone."""
        placement = self.describe(ShuffleKey(log.name))
        if placement.log != log:
            raise EventLogNotFoundError(
                f"event log {log.name!r} has been dropped, and another one has its name now"
            )
        return placement.key

    def _with_token(self, key: ShuffleKey) -> ShuffleKey:
        """Return a key with the token of this client's handle of the log, if it has one."""
        if key.token:
            return key
        known = (parse_handle(text, "cluster.logs") for text in self._handles)
        return next((each for each in known if each.id == key.id), key)

    def state(self, key: ShuffleKey, producer: str = "", offsets: Sequence[int] = ()) -> LogState:
        """Return which rows a log has, the last number of a producer, and the marks of offsets."""

        def ask(owner: str, key: ShuffleKey) -> LogState:
            request = LogStateRequest(key.id, key.token, producer, list(offsets))
            return call(self._connections, owner, DataAction.LOG_STATE, request, LogState)

        return self._at_owner(key, ask)

    def read(self, key: ShuffleKey, start: int, stop: int | None) -> Iterator[LogRows]:
        """Yield rows in their order; by default up to the last one that is durable now.

        Raises OffsetTrimmedError if rows from ``start`` on have been trimmed.
        """
        state = self.state(key)
        return self._read(key, start, state.high if stop is None else min(stop, state.high))

    def read_durable(self, key: ShuffleKey, start: int) -> Iterator[LogRows]:
        """Yield all rows from ``start`` on that are durable when the owner is asked.

        It is one call less than `read`. Raises OffsetTrimmedError as that does.
        """
        return self._read(key, start, None)

    def _read(self, key: ShuffleKey, start: int, end: int | None) -> Iterator[LogRows]:
        """Yield rows up to ``end``, or to the last one; go on at another owner if one is lost."""
        give_up_at, next_row = time.monotonic() + self._connections.timeouts.reconnect_s, start
        while end is None or next_row < end:
            try:
                for rows in self._rows(key, next_row, MAX_OFFSET if end is None else end):
                    yield rows
                    next_row = rows.stop
                    give_up_at = time.monotonic() + self._connections.timeouts.reconnect_s
                if end is None:
                    return
                if next_row < end:
                    raise IncompletePartitionError(
                        f"event log {key.id!r} gave rows up to {next_row}, and not up to {end}"
                    )
            except (*ELSEWHERE, IncompletePartitionError):
                if time.monotonic() > give_up_at:
                    raise

    def trim(self, key: ShuffleKey, offset: int) -> int:
        """Delete whole segments below an offset on every server that can be reached.

        Returns the first row that the owner keeps.
        """
        placement = self.describe(key)
        request = TrimLog(placement.name, min(offset, MAX_OFFSET), placement.token)
        return self._at_members(placement, DataAction.TRIM_LOG, request)

    def pin(self, key: ShuffleKey, offset: int, for_s: float) -> int:
        """Keep the rows from an offset on for a while, on every server that can be reached.

        Returns the first row that the owner has, which may be a later one.
        """
        placement = self.describe(key)
        request = PinLog(placement.name, offset, for_s, placement.token)
        return self._at_members(placement, DataAction.PIN_LOG, request)

    def _at_members(
        self, placement: LogPlacement, action: DataAction, request: TrimLog | PinLog
    ) -> int:
        """Tell the replicas of a log, and then its owner; return the owner's first row."""
        for member in placement.members:
            if member.location and member.store != placement.owner:
                self._tell(member.location, action, request, Trimmed)

        def tell(owner: str, key: ShuffleKey) -> int:
            return call(self._connections, owner, action, request, Trimmed).low

        return self._at_owner(placement.key, tell)

    def drop(self, key: ShuffleKey) -> None:
        """Drop a log and its files, on every server that can be reached."""
        attempts = itertools.count()

        def drop() -> LogPlacement | None:
            is_first = next(attempts) == 0
            try:
                return MetadataClient(self._metadata.location, self._connections).ask(
                    MetadataAction.DROP_LOG, LogName(*self._with_token(key)), LogPlacement
                )
            except EventLogNotFoundError:
                if is_first:
                    raise
                return None

        placement = self._retry(drop)
        for member in placement.members if placement is not None else ():
            if placement is not None and member.location:
                request = LogName(placement.name, placement.token)
                self._tell(member.location, DataAction.DROP_LOG, request, Done)

    def close(self) -> None:
        self._connections.close()

    def _tell(
        self,
        location: str,
        action: DataAction,
        request: TrimLog | PinLog | LogName,
        answer: type[Trimmed | Done],
    ) -> None:
        """Call a server that does not have to hear it."""
        try:
            call(self._connections, location, action, request, answer, timeout_s=2.0)
        except MrflightError:
            self._connections.forget(location)

    def _rows(self, key: ShuffleKey, start: int, stop: int) -> Iterator[LogRows]:
        def open_stream(owner: str, key: ShuffleKey) -> tuple[str, flight.FlightStreamReader]:
            options = flight.FlightCallOptions(timeout=self._connections.timeouts.stream_s)
            with from_flight(owner, f"read of event log {key.id}"):
                ticket = flight.Ticket(LogRead(key, start, stop).encode())
                return owner, self._connections.to(owner).do_get(ticket, options)

        owner, stream = self._at_owner(key, open_stream)
        while True:
            with from_flight(owner, f"read of event log {key.id}"):
                try:
                    message = stream.read_chunk()
                except StopIteration:
                    return
            yield LogRows(decode(memoryview(message.app_metadata), RowsTag).start, message.data)

    def _at_owner(self, key: ShuffleKey, deed: Callable[[str, ShuffleKey], T]) -> T:
        """Do something at the owner of a log, and again at the next one if that fails."""

        def at_owner() -> T:
            placement = self.describe(key)
            owner = placement.owner_location
            if not owner:
                raise ServerUnavailableError(
                    f"the data server that has the rows of event log {key.id!r} has stopped; "
                    "start it again with its --log-dir"
                )
            try:
                return deed(owner, placement.key)
            except (ServerUnavailableError, DeadlineExceededError):
                self._connections.forget(owner)
                raise

        return self._retry(at_owner)

    def _retry(self, request: Callable[[], T]) -> T:
        return retry_with_backoff(request, self._connections.timeouts.reconnect_s, ELSEWHERE)
