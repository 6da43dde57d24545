"""The batches of one producer of an event log that are not durable yet: what waits, what is sent.

It has no lock and no thread; an `Appender` calls it under its own lock.
"""

from __future__ import annotations

import secrets
from collections import deque

import pyarrow as pa

from mrflight.shuffle.client.append_message import (
    MAX_BATCHES,
    SMALL_BYTES,
    Message,
    Waiting,
    take_message,
)

MAX_MESSAGES = 8
"""The messages in flight: so many batches of a producer can be recognised if they are repeated."""


class AppendQueue:
    """Batches in their order, of which the first ones are sent as messages with numbers.

    If ``joins``, batches that wait are sent together. Otherwise each is a message, so that the
    number of a message is that of its batch.
    """

    def __init__(self, producer: str, next_sequence: int, joins: bool) -> None:
        self.producer = producer
        self._next = next_sequence
        self._joins = joins
        self._queued: deque[Waiting] = deque()
        self.sent: deque[Message] = deque()
        """The messages that wait for their receipts, the oldest first."""
        self.size_bytes = 0
        """The bytes of all batches, sent or not."""
        self._queued_bytes = 0

    @property
    def is_empty(self) -> bool:
        """True if all batches are durable, or have failed."""
        return not (self._queued or self.sent)

    @property
    def may_send(self) -> bool:
        """True if the next message should be sent now.

        Small batches wait for the receipt of the last message, and are sent together then, so that
        many threads share the cost of a message.
        """
        if not self._queued or len(self.sent) >= MAX_MESSAGES:
            return False
        return not (self._joins and self.sent) or self._queued_bytes >= SMALL_BYTES

    @property
    def next_schema(self) -> pa.Schema | None:
        """The schema of the next batch that is not sent; None if there is none."""
        return self._queued[0].batch.schema if self._queued else None

    @property
    def first_schema(self) -> pa.Schema | None:
        """The schema of the oldest batch, sent or not; None if there is none."""
        return self.sent[0].batch.schema if self.sent else self.next_schema

    def add(self, waiting: Waiting) -> None:
        """Queue a batch."""
        self._queued.append(waiting)
        self.size_bytes += waiting.size_bytes
        self._queued_bytes += waiting.size_bytes

    def take(self, schema: pa.Schema) -> Message:
        """Take the next batches, of which there is one at least, as a message that is sent."""
        most = MAX_BATCHES if self._joins else 1
        message = take_message(self._queued, schema, self._next, most)
        self._queued_bytes -= message.size_bytes
        self._next += 1
        self.sent.append(message)
        return message

    def take_received(self) -> Message:
        """Take out the oldest message, for which there is a receipt."""
        message = self.sent.popleft()
        self.size_bytes -= message.size_bytes
        return message

    def take_refused(self) -> list[Waiting]:
        """Take out the oldest message, which is not stored; the later ones get its number.

        If none was sent, all batches are taken out.
        """
        if not self.sent:
            return self._take_all()
        message = self.take_received()
        for later in self.sent:
            later.sequence -= 1
        self._next -= 1
        return message.parts

    def give_up(self) -> list[Waiting]:
        """Take out all batches, of which those that were sent may be stored or not.

        Their numbers cannot be used again, so a producer that nobody has named gets another name.
        """
        waiting = self._take_all()
        if self._joins:
            self.producer, self._next = secrets.token_hex(8), 0
        return waiting

    def _take_all(self) -> list[Waiting]:
        waiting = [part for message in self.sent for part in message.parts] + [*self._queued]
        self.sent.clear()
        self._queued.clear()
        self.size_bytes = self._queued_bytes = 0
        return waiting
