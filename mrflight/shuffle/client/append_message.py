"""The messages of a producer: batches that are sent, and stored or refused, together."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

MESSAGE_BYTES = 2**20
"""Batches that wait are sent together up to this size."""
MAX_BATCHES = 4096
SMALL_BYTES = 64 * 2**10
"""Messages below this size wait for the one before."""


class Appended(NamedTuple):
    """The rows ``start`` to ``stop`` of event log ``log``, which are durable."""

    log: str
    start: int
    stop: int
    sequence: int
    """The number of the message among those of its producer, counted from 0."""


class Waiting(NamedTuple):
    """A batch whose rows are not durable yet."""

    batch: pa.RecordBatch
    size_bytes: int
    future: Future[Appended]


@dataclass
class Message:
    """The rows of some batches, and their number among the messages of the producer."""

    sequence: int
    batch: pa.RecordBatch
    parts: list[Waiting]

    @property
    def size_bytes(self) -> int:
        """The bytes of its batches."""
        return sum(part.size_bytes for part in self.parts)

    def succeed(self, log: str, start: int) -> None:
        """Give each batch its offsets, of which ``start`` is the first."""
        for part in self.parts:
            stop = start + part.batch.num_rows
            part.future.set_result(Appended(log, start, stop, self.sequence))
            start = stop


def take_message(
    queued: deque[Waiting], schema: pa.Schema, sequence: int, max_batches: int
) -> Message:
    """Take the first batches of a queue, which has at least one, as one message of a schema."""
    parts = [queued.popleft()]
    size = parts[0].size_bytes
    while queued and len(parts) < max_batches:
        batch, size_bytes, _ = queued[0]
        if size + size_bytes > MESSAGE_BYTES or batch.schema != schema:
            break
        size += size_bytes
        parts.append(queued.popleft())
    batches = [part.batch for part in parts]
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return Message(sequence, rows, parts)


def size_of(batch: pa.RecordBatch) -> int:
    """Return roughly the bytes of a batch: the exact number takes 16 us for one of 8 columns."""
    buffers = int(batch.get_total_buffer_size())
    return buffers if buffers < SMALL_BYTES else int(batch.nbytes)
