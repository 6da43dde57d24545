"""The producers of an event log, and the last batches of each: a retry is found among them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mrflight.errors import ProducerSequenceError
from mrflight.shuffle.log.frame import StoredBatch

MAX_PRODUCERS = 4096
"""The producers that are remembered, those that wrote last. One that was forgotten is refused, and
goes on under another id."""
REMEMBERED_BATCHES = 8
"""The batches of each producer whose offsets are remembered, and so the most that a producer may
have in flight."""


class Producers:
    """The last batches of each producer, in the order of the log. Not safe for several threads."""

    def __init__(self, known: list[tuple[str, list[StoredBatch]]] | None = None) -> None:
        self._batches = {
            producer: deque(batches, REMEMBERED_BATCHES) for producer, batches in known or []
        }

    def add(self, producer: str, batch: StoredBatch) -> None:
        """Remember a batch that was written."""
        batches = self._batches.pop(producer, None) or deque(maxlen=REMEMBERED_BATCHES)
        batches.append(batch)
        self._batches[producer] = batches
        if len(self._batches) > MAX_PRODUCERS:
            del self._batches[next(iter(self._batches))]

    def last(self, producer: str) -> StoredBatch | None:
        """Return the last batch of a producer; None if it is not known."""
        batches = self._batches.get(producer)
        return batches[-1] if batches else None

    def recent(self, producer: str) -> tuple[StoredBatch, ...]:
        """Return the batches of a producer that are remembered, in their order."""
        return tuple(self._batches.get(producer, ()))

    def all(self) -> list[tuple[str, list[StoredBatch]]]:
        """Return what a new `Producers` can be made of."""
        return [(producer, list(batches)) for producer, batches in self._batches.items()]


def find_repeated(
    producer: str, sent: StoredBatch, batches: Sequence[StoredBatch]
) -> StoredBatch | None:
    """Return what is stored of a batch that a producer has sent; None if it is the next one.

    Raises ProducerSequenceError if the number is out of turn, or is that of other rows.
    """
    last, number = batches[-1].sequence if batches else -1, sent.sequence
    if number == last + 1:
        return None
    for batch in batches:
        if batch.sequence == number:
            if batch.is_same(sent):
                return batch
            raise ProducerSequenceError(
                f"producer {producer!r} sent batch {number}, and the event log has other "
                "rows as this batch; only one program at a time may use a producer's name, so "
                "give each its own, and go on behind last_sequence"
            )
    raise ProducerSequenceError(
        f"producer {producer!r} sent batch {number}, and batch {last + 1} is the next one that the "
        f"event log takes of it (the first of a producer is 0); only the last "
        f"{REMEMBERED_BATCHES} batches may be sent again"
    )
