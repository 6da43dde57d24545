"""Consumes one partition at a time with ``Consumer.consume`` of confluent-kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa

from mrflight.sources.kafka.client_errors import kafka_errors
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.messages import HEADERS, Messages

if TYPE_CHECKING:
    from confluent_kafka import Consumer


class Failure(msgspec.Struct, frozen=True):
    """An error that librdkafka reports for a partition."""

    name: str
    """Its name in librdkafka, such as ``_AUTO_OFFSET_RESET``."""
    text: str


class Fetched(msgspec.Struct, frozen=True):
    """What a poll returned: any of these, or nothing."""

    messages: Messages | None = None
    end: int | None = None
    """The offset that the next message will have, if the partition was read to its end."""
    failure: Failure | None = None


class PartitionConsumer(Protocol):
    """Consumes one partition at a time. Only one thread may use it."""

    max_poll: int
    """The most messages of one poll."""

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Begin to consume a partition, in place of the one before."""

    def poll(self, count: int, timeout_s: float) -> Fetched:
        """Return at most so many messages; wait for all of them until the timeout has passed."""

    @property
    def last_error(self) -> str:
        """The last error of the connections to brokers; empty if there was none."""

    def close(self) -> None:
        """End the connections; a second call does nothing."""


class PlainConsumer:
    """Makes a Python object of each message, and arrays of these."""

    max_poll = 10_000

    def __init__(self, settings: ClientSettings, with_headers: bool) -> None:
        from confluent_kafka import Consumer

        self._settings, self._with_headers = settings, with_headers
        self._partition: tuple[str, int] = ("", 0)
        self._last_error = ""
        config: dict[str, Any] = {**settings.of_consumer(), "error_cb": self._note_error}
        with kafka_errors(settings, "connect"):
            self._consumer: Consumer | None = Consumer(config)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        assert self._consumer is not None, "the consumer is closed"
        self._partition = topic, partition
        with kafka_errors(self._settings, f"read {topic}"):
            self._consumer.assign([TopicPartition(topic, partition, offset)])

    def poll(self, count: int, timeout_s: float) -> Fetched:
        assert self._consumer is not None, "the consumer is closed"
        with kafka_errors(self._settings, f"read {self._partition[0]}"):
            polled = self._consumer.consume(count, timeout_s)
        events = [each for each in polled if each.error() is not None]
        if not events:
            return Fetched(self._messages(polled) if polled else None)
        found = [each for each in polled if each.error() is None]
        end: int | None = None
        failure: Failure | None = None
        for each in events:
            error = each.error()
            assert error is not None
            if error.name() == "_PARTITION_EOF":
                end = each.offset()
            else:
                failure = Failure(error.name(), error.str())
        return Fetched(self._messages(found) if found else None, end, failure)

    @property
    def last_error(self) -> str:
        return self._last_error

    def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.close()

    def _messages(self, found: Sequence[Any]) -> Messages:
        topic, partition = self._partition
        return Messages(
            topic,
            partition,
            pa.array([each.offset() for each in found], pa.int64()),
            pa.array([each.timestamp()[1] for each in found], pa.int64()),
            pa.array([each.key() for each in found], pa.binary()),
            pa.array([each.value() for each in found], pa.binary()),
            headers_array([each.headers() for each in found]) if self._with_headers else None,
        )

    def _note_error(self, error: Any) -> None:
        self._last_error = error.str()


def headers_array(found: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.ListArray:
    """Return the headers of each message, which are null if it has none."""
    rows = [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for each in found
    ]
    return pa.array(rows, HEADERS)
