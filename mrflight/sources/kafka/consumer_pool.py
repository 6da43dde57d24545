"""Keeps consumers in a worker process between tasks, as a new one has to connect first."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

import msgspec

from mrflight.sources.kafka.client_errors import import_confluent_kafka
from mrflight.sources.kafka.client_settings import MAX_KEPT, ClientSettings
from mrflight.sources.kafka.consumer import PartitionConsumer, PlainConsumer
from mrflight.sources.kafka.drain import DrainConsumer, drain_library
from mrflight.sources.kafka.offset_range import OffsetRange

MAX_IDLE = MAX_KEPT
"""The consumers that a process keeps, for as many partitions that it reads in turns.

To go on with a partition takes a millisecond; one that another partition is assigned to waits 50 ms
for the request for the one before.
"""


class _Kind(msgspec.Struct, frozen=True):
    settings: ClientSettings
    with_headers: bool


class BorrowedConsumer:
    """A consumer that one task reads a partition with. It knows where it is."""

    def __init__(self, kind: _Kind, consumer: PartitionConsumer) -> None:
        self.kind = kind
        self.consumer = consumer
        self.next: tuple[str, int, int] | None = None
        """The topic, partition and offset that the next poll goes on with; None if it is not
        known."""


_idle: list[BorrowedConsumer] = []
_lock = Lock()
_owner = os.getpid()


@contextmanager
def borrow_consumer(
    settings: ClientSettings, with_headers: bool, range: OffsetRange
) -> Iterator[BorrowedConsumer]:
    """Return a consumer that polls the range from its start on.

    One that has just read what comes before it goes on with what it has fetched already. It is
    closed if the block raises, and otherwise kept for the next task.
    """
    import_confluent_kafka(settings.key)
    kind = _Kind(settings, with_headers)
    start = range.topic, range.partition, range.start
    borrowed = _take(kind, start) or BorrowedConsumer(kind, _new_consumer(kind))
    try:
        if borrowed.next != start:
            borrowed.consumer.assign(*start)
            borrowed.next = start
        yield borrowed
    except GeneratorExit:  # whoever reads wants no more, and the consumer knows where it is
        _keep(borrowed)
        raise
    except BaseException:
        borrowed.consumer.close()
        raise
    _keep(borrowed)


def close_idle() -> None:
    """Close the consumers that no task uses."""
    with _lock:
        closing = list(_idle)
        _idle.clear()
    for each in closing:
        with suppress(Exception):  # the process ends, or the next task opens another one
            each.consumer.close()


def _new_consumer(kind: _Kind) -> PartitionConsumer:
    library = drain_library()
    if library is None:
        return PlainConsumer(kind.settings, kind.with_headers)
    return DrainConsumer(kind.settings, kind.with_headers, library)


def _take(kind: _Kind, start: tuple[str, int, int]) -> BorrowedConsumer | None:
    _forget_those_of_parent()
    with _lock:
        fitting = [each for each in _idle if each.kind == kind]
        found = next((each for each in fitting if each.next == start), None)
        if found is None:
            of_it = (each for each in fitting if each.next and each.next[:2] == start[:2])
            found = next(of_it, None)
        if found is None and len(fitting) == MAX_IDLE:
            found = fitting[0]  # that was used the longest ago
        if found is not None:
            _idle.remove(found)
        return found


def _keep(borrowed: BorrowedConsumer) -> None:
    with _lock:
        _idle.append(borrowed)
        left = [_idle.pop(0) for _ in range(len(_idle) - MAX_IDLE)]
    for each in left:
        each.consumer.close()


def _forget_those_of_parent() -> None:
    """Leave the consumers of the process that this one was forked from alone."""
    global _owner
    if _owner != os.getpid():
        _owner = os.getpid()
        _idle.clear()


atexit.register(close_idle)
