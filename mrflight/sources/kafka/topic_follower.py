"""Follows several partitions at once, and returns messages as soon as there are any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from mrflight.errors import InputError
from mrflight.sources.kafka.client_errors import import_confluent_kafka, kafka_errors
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.consumer import headers_array
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.system.closeable import Closeable

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_MAX_POLL = 10_000
_END = "_PARTITION_EOF"
_LOST = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


class Followed(msgspec.Struct, frozen=True):
    """What a poll has found in a partition."""

    partition: Partition
    messages: Messages | None
    """None if offsets without messages were passed."""
    start: int
    stop: int
    """The offset to go on with."""


class TopicFollower(Closeable):
    """Consumes partitions from given offsets on. Only one thread may use it."""

    def __init__(self, settings: ClientSettings, *, with_headers: bool) -> None:
        import_confluent_kafka(settings.key)
        from confluent_kafka import Consumer

        self._settings = settings
        self._with_headers = with_headers
        with kafka_errors(settings, "connect"):
            self._consumer: Consumer = Consumer(settings.of_consumer())
        self._positions: dict[Partition, int] = {}

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Go on from these offsets; what was fetched is fetched again."""
        from confluent_kafka import TopicPartition

        self._positions = dict(positions)
        wanted = [TopicPartition(*each, offset) for each, offset in positions.items()]
        with kafka_errors(self._settings, "read"):
            self._consumer.assign(wanted)

    def poll(self, timeout_s: float) -> list[Followed]:
        """Return what has arrived, or what arrives first within the timeout.

        Raises InputError if a partition has lost the offset to go on with.
        """
        with kafka_errors(self._settings, "read"):
            polled = self._consumer.consume(1, timeout_s)
            if polled:
                polled += self._consumer.consume(_MAX_POLL - 1, 0)
        found: dict[Partition, list[Any]] = {}
        ends: dict[Partition, int] = {}
        for each in polled:
            place = each.topic(), each.partition()
            if (error := each.error()) is None:
                found.setdefault(place, []).append(each)
            elif error.name() == _END:
                ends[place] = each.offset()
            elif error.name() in _LOST:
                raise InputError(f"{self._settings.key}: {place[0]}/{place[1]}: {error.str()}")
        return [
            each
            for place in dict.fromkeys([*found, *ends])
            if (each := self._followed(place, found.get(place), ends.get(place, -1))) is not None
        ]

    def close(self) -> None:
        self._consumer.close()

    def _followed(self, place: Partition, polled: list[Any] | None, end: int) -> Followed | None:
        start = self._positions[place]
        messages = None if polled is None else self._messages(place, polled)
        stop = max(end, -1 if polled is None else polled[-1].offset() + 1)
        if stop <= start:
            return None
        self._positions[place] = stop
        return Followed(place, messages, start, stop)

    def _messages(self, place: Partition, found: list[Any]) -> Messages:
        return Messages(
            *place,
            pa.array([each.offset() for each in found], pa.int64()),
            pa.array([each.timestamp()[1] for each in found], pa.int64()),
            pa.array([each.key() for each in found], pa.binary()),
            pa.array([each.value() for each in found], pa.binary()),
            headers_array([each.headers() for each in found]) if self._with_headers else None,
        )
