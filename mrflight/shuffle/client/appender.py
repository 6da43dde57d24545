"""Appends batches to an event log, with many of them in flight."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from concurrent.futures import Future

import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.config.identity import ClientOptions
from mrflight.errors import DeadlineExceededError, JobError, MrflightError, ServerUnavailableError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.client.append_message import (
    MAX_BATCHES,
    SMALL_BYTES,
    Appended,
    Message,
    Waiting,
    size_of,
    take_message,
)
from mrflight.shuffle.client.append_stream import AppendStream, receipt_error
from mrflight.shuffle.client.log_client import LogClient
from mrflight.shuffle.wire.log_protocol import AppendReceipt, AppendTag
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

MAX_MESSAGES = 8
"""The messages in flight: so many batches of a producer can be recognised if they are repeated."""
MAX_BYTES = 32 * 2**20
"""The bytes that wait for their receipts. Beyond that `Appender.append` waits."""
_LOOK_S = 2.0
"""How long a message may wait for its receipt before it is looked whether the owner has changed."""
_FIRST_PAUSE_S = 0.02
_MAX_PAUSE_S = 0.5


class Appender(Closeable):
    """One producer of an event log; made by `Cluster.appender`. Safe for many threads.

    Batches are stored in the order in which they are given, each once, also if a server is lost
    meanwhile and they are sent again. Without a name, the producer lasts as long as this object,
    and batches that wait are sent together. A producer with a name sends each batch alone, so that
    the number of a batch is that of the call, and goes on after a restart where it was: see
    `last_sequence`.
    """

    def __init__(
        self, location: str, key: ShuffleKey, options: ClientOptions, producer: str = ""
    ) -> None:
        self._options = options
        self._client = LogClient(location, options)
        self._joins = not producer
        self.producer = producer or secrets.token_hex(8)
        try:
            self._key = self._client.describe(key).key
            known = self._client.state(self._key, producer).last_sequence if producer else -1
        except BaseException:
            self._client.close()
            raise
        self.last_sequence = known
        """The number of the producer's last batch when this object was made, -1 if there was none.
        Numbers count the calls of `append`, from 0."""
        self._next = known + 1
        self._plain: pa.Schema | None = None
        """The canonical schema of the last batch."""
        self._changed = threading.Condition()
        self._queued: deque[Waiting] = deque()
        self._sent: deque[Message] = deque()
        self._bytes = self._queued_bytes = 0
        self._stream: AppendStream | None = None
        self._error: MrflightError | None = None
        self._failing_since = 0.0
        self._heard_at = 0.0
        """When the last receipt came, or what it is waited for was sent."""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)
        self._thread.start()

    def append(self, batch: pa.RecordBatch) -> Future[Appended]:
        """Queue a batch; the future is done once its rows are durable.

        Waits while 32 MiB are on their way. The future raises SchemaMismatchError if the rows do
        not have the schema of the log, EventLogWriteError if they cannot be stored, and
        ServerUnavailableError if no server could be reached for ``timeouts.reconnect_s``; what was
        on its way then may be stored or not.
        """
        canonical = self._canonical(batch)
        waiting = Waiting(canonical, size_of(canonical), Future())
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < MAX_BYTES or self._is_closing)
            if self._is_closing:
                raise JobError(
                    f"this appender of event log {self._key.id!r} is closed, or has failed; make "
                    "another one"
                )
            self._queued.append(waiting)
            self._bytes += waiting.size_bytes
            self._queued_bytes += waiting.size_bytes
            if self._may_send():
                self._changed.notify_all()
        return waiting.future

    def _canonical(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch in the layout of the log. Most have the schema of the one before."""
        if self._plain is not None and self._plain.equals(batch.schema, check_metadata=True):
            return batch
        schema = canonical_schema(batch.schema)
        self._plain = schema
        return to_canonical(batch, schema)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all batches are durable or have failed.

        Raises DeadlineExceededError after ``timeout_s``. Errors are those of the futures.
        """
        with self._changed:
            if not self._changed.wait_for(self._is_idle, timeout_s):
                raise DeadlineExceededError(
                    f"event log {self._key.id!r} has not stored {self._bytes} bytes in time"
                )

    def close(self) -> None:
        """Wait for all batches, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self._client.close()

    def _is_idle(self) -> bool:
        return not (self._queued or self._sent)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._await_work():
            try:
                self._work()
                pause_s = _FIRST_PAUSE_S
            except MrflightError as error:
                self._note(error)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        if self._stream is not None:
            try:
                self._stream.end()
            except MrflightError as error:
                log.debug("an appender ended: %s", error)

    def _await_work(self) -> bool:
        """Wait until there is something to send; return False once there will be nothing more."""
        while not self._wait(_LOOK_S):
            self._look()
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            self._note(error)
        return not (self._is_closing and self._is_idle())

    def _wait(self, timeout_s: float) -> bool:
        """Return whether there is something to do; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    self._may_send()
                    or (bool(self._sent) and self._stream is None)
                    or (self._is_closing and self._is_idle())
                ),
                timeout_s,
            )

    def _look(self) -> None:
        """Leave an owner that does not answer, if another server owns the log by now.

        A server that is suspended keeps its connections, so that nothing else would end the wait.
        """
        with self._changed:
            stream, waits = self._stream, time.monotonic() - self._heard_at
            if stream is None or not self._sent or waits < _LOOK_S:
                return
        try:
            is_owner = self._client.describe(self._key).owner_location == stream.location
        except MrflightError as error:
            log.debug("event log %s: %s", self._key.id, error)
            return
        if not is_owner or waits > self._options.timeouts.idle_timeout_s:
            with self._changed:
                self._stream = None

    def _may_send(self) -> bool:
        """Return whether the next message should be sent now.

        Small batches wait for the receipt of the last message, and are sent together then, so that
        many threads share the cost of a message.
        """
        if not self._queued or len(self._sent) >= MAX_MESSAGES:
            return False
        return not (self._joins and self._sent) or self._queued_bytes >= SMALL_BYTES

    def _work(self) -> None:
        """Send again what was sent over a stream that has broken, and then what is queued."""
        if self._stream is None:
            with self._changed:
                again = list(self._sent)
            schema = self._first_schema()
            if schema is None:
                return
            stream = self._opened(schema)
            for sent in again:
                stream.send(sent.batch, AppendTag(self.producer, sent.sequence))
            return
        message = self._next_message(self._stream)
        if message is not None:
            self._stream.send(message.batch, AppendTag(self.producer, message.sequence))

    def _first_schema(self) -> pa.Schema | None:
        with self._changed:
            if self._sent:
                return self._sent[0].batch.schema
            return self._queued[0].batch.schema if self._queued else None

    def _opened(self, schema: pa.Schema) -> AppendStream:
        placement = self._client.describe(self._key)
        if not placement.owner_location:
            raise ServerUnavailableError(
                f"the data server that has the rows of event log {self._key.id!r} has stopped; "
                "start it again with its --log-dir"
            )
        with self._changed:
            self._heard_at = time.monotonic()
            self._stream = AppendStream(
                self._key, placement.owner_location, schema, self._options, self._received
            )
            return self._stream

    def _next_message(self, stream: AppendStream) -> Message | None:
        """Take what is queued as one message; its rows have the schema of the stream."""
        with self._changed:
            if self._queued and self._queued[0].batch.schema != stream.schema:
                if not self._sent:
                    stream.end()
                    self._stream = None
                else:
                    self._changed.wait_for(lambda: not self._sent or self._stream is not stream)
                return None
            if not self._queued:
                return None
            message = take_message(
                self._queued, stream.schema, self._next, MAX_BATCHES if self._joins else 1
            )
            self._queued_bytes -= message.size_bytes
            self._next += 1
            if not self._sent:
                self._heard_at = time.monotonic()
            self._sent.append(message)
            return message

    def _received(self, stream: AppendStream, receipt: AppendReceipt | MrflightError) -> None:
        """Take a receipt of the oldest message, or the error that has ended the stream."""
        if isinstance(receipt, AppendReceipt) and not receipt.error:
            with self._changed:
                if stream is not self._stream or not self._sent:
                    return
                message = self._sent.popleft()
                self._failing_since, self._heard_at = 0.0, time.monotonic()
                self._leave(message)
            message.succeed(self._key.id, receipt.start)
            return
        error = receipt if isinstance(receipt, MrflightError) else receipt_error(receipt)
        with self._changed:
            if stream is not self._stream:
                return
            self._stream = None
            self._error = error
            self._changed.notify_all()

    def _leave(self, message: Message) -> None:
        self._bytes -= message.size_bytes
        self._changed.notify_all()

    def _note(self, error: MrflightError) -> None:
        """Decide what an error means: to try again, one message that is refused, or the end."""
        now = time.monotonic()
        with self._changed:
            self._stream = None
            if error.retryable or isinstance(error, DeadlineExceededError):
                self._failing_since = self._failing_since or now
                if now - self._failing_since < self._options.timeouts.reconnect_s:
                    return
                failed = [*self._sent]
                waiting = [part for message in failed for part in message.parts]
                waiting += self._queued
                self._queued.clear()
                self._sent.clear()
                self._bytes = self._queued_bytes = 0
                self._failing_since = 0.0
                self._begin_again()
            else:
                waiting = self._refused()
            self._changed.notify_all()
        for part in waiting:
            part.future.set_exception(error)

    def _begin_again(self) -> None:
        """Go on after batches were given up that may be stored or not.

        Their numbers cannot be used again. A producer that nobody has named gets another name; one
        with a name ends, so that its program looks at what is stored.
        """
        if self._joins:
            self.producer, self._next = secrets.token_hex(8), 0
        else:
            self._is_closing = True

    def _refused(self) -> list[Waiting]:
        """Take out the oldest message, which is not stored; the later ones get its number."""
        if not self._sent:
            waiting = list(self._queued)
            self._queued.clear()
            self._bytes = self._queued_bytes = 0
            return waiting
        message = self._sent.popleft()
        self._leave(message)
        for later in self._sent:
            later.sequence -= 1
        self._next -= 1
        return message.parts
