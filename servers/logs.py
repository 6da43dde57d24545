"""The event logs of a data server, as its Flight handlers use them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.compute.layout import canonical_schema
from mrflight.errors import (
    EventLogNotFoundError,
    LogOwnerChangedError,
    MrflightError,
    ProtocolError,
)
from mrflight.ids import ShuffleKey
from mrflight.security.principal import JOBS, READERS, SERVERS
from mrflight.shuffle.log.durable_log import NO_MARK
from mrflight.shuffle.log.frame import MAX_ROWS, check_size, serialize
from mrflight.shuffle.log.group_commit import Append
from mrflight.shuffle.log.log_folder import LogFolder
from mrflight.shuffle.log.log_pins import LogPins
from mrflight.shuffle.log.log_rows import read_rows
from mrflight.shuffle.log.log_totals import LogTotals
from mrflight.shuffle.store.canonical_slices import canonical_slices
from mrflight.shuffle.store.received_batch import check_received
from mrflight.shuffle.wire.flight_errors import answer_stream
from mrflight.shuffle.wire.log_protocol import (
    AppendTag,
    LogName,
    LogState,
    LogStateRequest,
    PinLog,
    RowsTag,
    TrimLog,
    Trimmed,
    decode_log_put,
    decode_log_ticket,
)
from mrflight.shuffle.wire.log_rights import LogRight, check_rights
from mrflight.shuffle.wire.protocol import DataAction, Done, Message, decode
from mrflight.system.closeable import Closeable

from .actions import Handler, of_shuffle
from .append_answers import Answers
from .guard import Guard, check_token
from .idle_streams import IdleStream, StreamRules, end_connection
from .membership import Membership
from .owned_logs import OwnedLog, OwnedLogs


class Logs(Closeable):
    """Answers the calls for event logs, whose folder is ``root``, once it has begun.

    Raises JobFileError if the folder cannot be used.
    """

    def __init__(self, root: Path) -> None:
        self._folder = LogFolder(root)
        self.store = self._folder.store
        """The id of the folder."""
        self.totals = LogTotals()
        self._pins = LogPins()
        self._trimming = threading.Lock()
        """Held by a trim and by a pin, or rows could go that were just pinned."""
        self._peers: Counter[str] = Counter()
        self._counting = threading.Lock()

    def begin(self, membership: Membership, guard: Guard, rules: StreamRules) -> None:
        """Answer calls from now on, as a member of a cluster."""
        self._owned = OwnedLogs(self._folder, membership, self.totals)
        self._guard = guard
        self._rules = rules

    def actions(self) -> dict[str, Handler]:
        """Return what answers the actions of event logs."""
        do = DataAction
        return {
            do.LOG_STATE: of_shuffle(LogStateRequest, self._state, READERS),
            do.TRIM_LOG: of_shuffle(TrimLog, self._trim, JOBS),
            do.PIN_LOG: of_shuffle(PinLog, self._pin, READERS),
            do.DROP_LOG: of_shuffle(LogName, self._drop, JOBS),
        }

    def size_bytes(self) -> int:
        """Return the bytes of the logs that are open."""
        return self._folder.size_bytes()

    def takes(self, descriptor: flight.FlightDescriptor) -> bool:
        """Return whether a put is for an event log."""
        return decode_log_put(descriptor.path or []) is not None

    def put(
        self,
        context: Any,
        descriptor: flight.FlightDescriptor,
        messages: Iterator[flight.FlightStreamChunk],
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Append a stream of batches, or take the frames of another owner.

        Each message is answered once its rows are durable. The stream ends with the first error.
        """
        put = decode_log_put(descriptor.path)
        assert put is not None, "the server has asked"
        principal = self._guard.caller(context, JOBS if put.mode is None else SERVERS)
        check_token(principal, put.key.token)
        with self._open_put(context.peer()) as stream:
            received = stream.received(messages)
            if put.mode is not None:
                self._owned.replicas.receive(put, received, writer.write)
            else:
                self._append(self._owned.find(put.key, LogRight.APPEND), received, writer)

    @contextmanager
    def _open_put(self, peer: str) -> Iterator[IdleStream]:
        """Watch a put, whose client may have nothing to send for hours."""
        with self._counting:
            self._peers[peer] += 1
        try:
            with self._rules.idle.watched(peer) as stream:
                yield stream
        finally:
            with self._counting:
                self._peers[peer] -= 1
                if not self._peers[peer]:
                    del self._peers[peer]

    def _append(
        self,
        log: OwnedLog,
        messages: Iterator[flight.FlightStreamChunk],
        writer: flight.FlightMetadataWriter,
    ) -> None:
        answers = Answers(writer.write)
        refusal: MrflightError | None = None
        try:
            for message in messages:
                if answers.error is not None:
                    break
                check_received(message.data, takes_compressed=self._rules.takes_compressed)
                append = _decoded(log, message, answers.put)
                answers.submitted += 1
                log.commit.submit(append)
        except MrflightError as error:
            refusal = error
        finally:
            answers.finish()
        if refusal is not None:
            answers.refuse(refusal)
        if answers.error is not None:
            raise answers.error

    def gives(self, ticket: flight.Ticket) -> bool:
        """Return whether a ticket is of an event log."""
        return decode_log_ticket(ticket.ticket) is not None

    def get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Return the rows of a ticket that are durable now, with their offsets."""
        request = decode_log_ticket(ticket.ticket)
        assert request is not None, "the server has asked"
        check_token(self._guard.caller(context, READERS), request.key.token)
        commit = self._owned.find(request.key, LogRight.READ).commit
        stop, schema = min(request.stop, commit.durable), commit.log.schema
        if schema is None:
            return flight.GeneratorStream(pa.schema([]), iter(()))
        frames = commit.log.read(request.start, stop)
        rows = read_rows(frames, schema, request.start, stop)
        tagged = ((batch, msgspec.json.encode(RowsTag(first))) for first, batch in rows)
        sent = self._rules.idle.sent(context.peer(), tagged)
        return flight.GeneratorStream(schema, answer_stream(sent))

    def _state(self, request: LogStateRequest) -> Message:
        key = ShuffleKey(request.name, request.token)
        commit = self._owned.find(key, LogRight.READ, LogRight.APPEND).commit
        schema, durable = commit.log.schema, commit.durable
        return LogState(
            commit.log.low,
            durable,
            b"" if schema is None else schema.serialize().to_pybytes(),
            commit.log.last_sequence(request.producer, durable),
            commit.log.size_bytes,
            [commit.log.mark(each) if each <= durable else NO_MARK for each in request.offsets],
        )

    def _trim(self, request: TrimLog) -> Message:
        """Trim a log here, but no row that a reader has pinned."""
        key = self._key_here(request, LogRight.DROP)
        with self._trimming:
            return Trimmed(self._folder.open(key).trim(self._pins.floor(key, request.offset)))

    def _pin(self, request: PinLog) -> Message:
        key = self._key_here(request, LogRight.READ)
        with self._trimming:
            self._pins.add(key, request.offset, request.for_s)
            return Trimmed(self._folder.open(key).low)

    def _key_here(self, request: TrimLog | PinLog, needed: LogRight) -> ShuffleKey:
        """Return the key of a log that this server owns or has a replica of."""
        placement = self._owned.describe(request.name)
        check_rights(ShuffleKey(request.name, request.token), placement.token, needed)
        if self.store not in (member.store for member in placement.members):
            raise LogOwnerChangedError(f"event log {request.name!r} is not on this data server")
        return placement.key

    def _drop(self, request: LogName) -> Message:
        """Delete the rows of a log that the metadata server does not know any more."""
        key = ShuffleKey(request.name, request.token)
        try:
            check_rights(key, self._owned.describe(request.name).token)
        except EventLogNotFoundError:
            self._owned.drop(key)
            self._pins.forget(key)
            return Done()
        raise ProtocolError(
            f"event log {request.name!r} is not dropped yet; drop it at the metadata server first"
        )

    def stop(self) -> None:
        """Acknowledge what is queued, take nothing more, and end the streams of producers.

        They have no end of their own, so that the server would wait for them.
        """
        self._owned.close()
        with self._counting:
            peers = list(self._peers)
        for peer in peers:
            end_connection(peer)

    def close(self) -> None:
        """Close the files."""
        self._folder.close()


def _decoded(
    log: OwnedLog, message: flight.FlightStreamChunk, done: Callable[[Append], None]
) -> Append:
    rows = message.data.num_rows
    if not message.data.num_columns or rows > MAX_ROWS:
        raise ProtocolError(
            f"a batch of an event log must have columns and up to {MAX_ROWS} rows, not {rows}"
        )
    schema = canonical_schema(message.data.schema)
    log.commit.check_schema(schema)
    payload = serialize(_plain(message.data))
    tag = message.app_metadata
    if tag is None or not tag.size:
        return Append(payload, rows, done)
    sent = decode(memoryview(tag), AppendTag)
    return Append(payload, rows, done, sent.producer, sent.sequence)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in its canonical layout, in which it may have many times its bytes."""
    pieces, size = [], 0
    for piece in canonical_slices(batch):
        size += piece.nbytes
        check_size(size)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
