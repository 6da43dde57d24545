"""Appends batches to an event log, with many of them in flight."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from concurrent.futures import Future

import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.config.identity import ClientOptions
from mrflight.errors import (
    DeadlineExceededError,
    JobError,
    MrflightError,
    ProducerSequenceError,
    ServerUnavailableError,
)
from mrflight.ids import ShuffleKey
from mrflight.shuffle.client.append_message import Appended, Message, Waiting, size_of
from mrflight.shuffle.client.append_queue import AppendQueue
from mrflight.shuffle.client.append_stream import AppendStream, receipt_error
from mrflight.shuffle.client.log_client import LogClient
from mrflight.shuffle.wire.log_protocol import AppendReceipt, AppendTag
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

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
        self._is_named = bool(producer)
        try:
            self._key = self._client.describe(key).key
            known = self._client.state(self._key, producer).last_sequence if producer else -1
        except BaseException:
            self._client.close()
            raise
        self.last_sequence = known
        """The number of the producer's last batch when this object was made, -1 if there was none.
        Numbers count the calls of `append`, from 0."""
        self._queue = AppendQueue(producer or secrets.token_hex(8), known + 1, joins=not producer)
        self._plain: pa.Schema | None = None
        """The canonical schema of the last batch."""
        self._changed = threading.Condition()
        self._stream: AppendStream | None = None
        self._error: MrflightError | None = None
        self._failing_since = 0.0
        self._heard_at = 0.0
        """When the last receipt came, or what it is waited for was sent."""
        self._settling = 0
        """How many messages were taken from the queue, and have futures that are not set yet."""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)
        self._thread.start()

    @property
    def producer(self) -> str:
        """The name of the producer, by which the log recognises what is sent again."""
        return self._queue.producer

    def append(self, batch: pa.RecordBatch) -> Future[Appended]:
        """Queue a batch; the future is done once its rows are durable.

        Waits while 32 MiB are on their way. The future raises SchemaMismatchError if the rows do
        not have the schema of the log, EventLogWriteError if they cannot be stored, and
        ServerUnavailableError if no server could be reached for ``timeouts.reconnect_s``; what was
        on its way then may be stored or not. So may it be after a ProducerSequenceError: another
        program uses the name of the producer.
        """
        canonical = self._canonical(batch)
        waiting = Waiting(canonical, size_of(canonical), Future())
        with self._changed:
            self._changed.wait_for(lambda: self._queue.size_bytes < MAX_BYTES or self._is_closing)
            if self._is_closing:
                raise JobError(
                    f"this appender of event log {self._key.id!r} is closed, or has failed; make "
                    "another one"
                )
            self._queue.add(waiting)
            if self._queue.may_send:
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
            if not self._changed.wait_for(self._is_settled, timeout_s):
                raise DeadlineExceededError(
                    f"event log {self._key.id!r} has not stored {self._queue.size_bytes} bytes "
                    "in time"
                )

    def close(self) -> None:
        """Wait for all batches, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self._client.close()

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
        return not (self._is_closing and self._is_settled())

    def _wait(self, timeout_s: float) -> bool:
        """Return whether there is something to do; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    self._queue.may_send
                    or (bool(self._queue.sent) and self._stream is None)
                    or (self._is_closing and self._is_settled())
                ),
                timeout_s,
            )

    def _look(self) -> None:
        """Leave an owner that does not answer, if another server owns the log by now.

        A server that is suspended keeps its connections, so that nothing else would end the wait.
        """
        with self._changed:
            stream, waits = self._stream, time.monotonic() - self._heard_at
            if stream is None or not self._queue.sent or waits < _LOOK_S:
                return
        try:
            is_owner = self._client.describe(self._key).owner_location == stream.location
        except MrflightError as error:
            log.debug("event log %s: %s", self._key.id, error)
            return
        if not is_owner or waits > self._options.timeouts.idle_timeout_s:
            with self._changed:
                self._stream = None

    def _work(self) -> None:
        """Send again what was sent over a stream that has broken, and then what is queued."""
        if self._stream is None:
            with self._changed:
                again, schema = list(self._queue.sent), self._queue.first_schema
            if schema is None:
                return
            stream = self._opened(schema)
            for sent in again:
                stream.send(sent.batch, AppendTag(self._queue.producer, sent.sequence))
            return
        message = self._next_message(self._stream)
        if message is not None:
            self._stream.send(message.batch, AppendTag(self._queue.producer, message.sequence))

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
            schema, sent = self._queue.next_schema, self._queue.sent
            if schema is None:
                return None
            if schema != stream.schema:
                if not sent:
                    stream.end()
                    self._stream = None
                else:
                    self._changed.wait_for(lambda: not sent or self._stream is not stream)
                return None
            if not sent:
                self._heard_at = time.monotonic()
            return self._queue.take(stream.schema)

    def _received(self, stream: AppendStream, receipt: AppendReceipt | MrflightError) -> None:
        """Take a receipt of the oldest message, or the error that has ended the stream."""
        if isinstance(receipt, AppendReceipt) and not receipt.error:
            with self._changed:
                if stream is not self._stream or not self._queue.sent:
                    return
                message = self._queue.take_received()
                self._failing_since, self._heard_at = 0.0, time.monotonic()
                self._settling += 1
                self._changed.notify_all()
            try:
                message.succeed(self._key.id, receipt.start)
            finally:  # a future that its owner has cancelled cannot be set
                self._settle()
            return
        error = receipt if isinstance(receipt, MrflightError) else receipt_error(receipt)
        with self._changed:
            if stream is not self._stream:
                return
            self._stream = None
            self._error = error
            self._changed.notify_all()

    def _note(self, error: MrflightError) -> None:
        """Decide what an error means: to try again, one message that is refused, or the end."""
        now = time.monotonic()
        with self._changed:
            self._stream = None
            is_lost = isinstance(error, ProducerSequenceError)  # its numbers are of other rows
            if is_lost or error.retryable or isinstance(error, DeadlineExceededError):
                self._failing_since = self._failing_since or now
                waited_s = now - self._failing_since
                if not is_lost and waited_s < self._options.timeouts.reconnect_s:
                    return
                waiting = self._queue.give_up()
                self._failing_since = 0.0
                # The program of a named producer is to look at what is stored before it goes on.
                self._is_closing = self._is_closing or self._is_named
            else:
                waiting = self._queue.take_refused()
            self._settling += 1
            self._changed.notify_all()
        try:
            for part in waiting:
                part.future.set_exception(error)
        finally:
            self._settle()

    def _settle(self) -> None:
        """Note that the futures of what was taken from the queue are set."""
        with self._changed:
            self._settling -= 1
            self._changed.notify_all()

    def _is_settled(self) -> bool:
        """Return whether nothing is queued, and all futures are set."""
        return self._queue.is_empty and not self._settling
