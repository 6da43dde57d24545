"""Reads a range of offsets of one partition to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator

from mrflight.errors import BrokerUnavailableError, InputError, LostOffsetsError, MrflightError
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.consumer import Failure, Fetched
from mrflight.sources.kafka.consumer_pool import BorrowedConsumer, borrow_consumer
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.offset_range import OffsetRange, partition_path
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from mrflight.units import format_bytes

SILENCE_TIMEOUT_S = 60.0
"""How long to wait for messages of a partition whose brokers are away."""

_POLL_S = 0.1
_FIRST_POLL = 1_000
_OUT_OF_RANGE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")
_REFUSED = ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "_AUTHENTICATION")
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE")


def read_range(
    settings: ClientSettings,
    range: OffsetRange,
    with_headers: bool,
    timeout_s: float = SILENCE_TIMEOUT_S,
) -> Iterator[Messages]:
    """Yield the committed messages of a range, in batches of ``settings.batch_bytes``.

    The end is found by the position of the consumer: a range may end with offsets that have no
    message, because these are of aborted transactions, were compacted, or mark a commit. Waits for
    brokers that are away, and raises BrokerUnavailableError after ``timeout_s``; LostOffsetsError
    if the partition does not have the first offset any more; InputError for what the brokers
    refuse.
    """
    if range.count <= 0:
        return
    with borrow_consumer(settings, with_headers, range) as borrowed:
        yield from _RangeReader(settings, range, borrowed, timeout_s).read()


class _RangeReader:
    def __init__(
        self,
        settings: ClientSettings,
        range: OffsetRange,
        borrowed: BorrowedConsumer,
        timeout_s: float,
    ) -> None:
        self._settings, self._range, self._timeout_s = settings, range, timeout_s
        self._borrowed, self._consumer = borrowed, borrowed.consumer
        self._position = range.start
        self._end: int | None = None
        self._failure = ""
        self._count = _FIRST_POLL

    def read(self) -> Iterator[Messages]:
        stop = self._range.stop
        last = time.monotonic()
        while self._position < stop:
            fetched = self._consumer.poll(min(self._count, stop - self._position), _POLL_S)
            messages = self._advance(fetched)
            if messages is not None:
                yield messages
            # A caller that takes long with a batch does not make the broker silent.
            if messages is not None or fetched.end is not None:
                last = time.monotonic()
            elif time.monotonic() - last > self._timeout_s:
                raise self._silent()

    def _advance(self, fetched: Fetched) -> Messages | None:
        """Move the position, and return the messages of the range."""
        topic, partition, stop = self._range.topic, self._range.partition, self._range.stop
        if fetched.messages is not None:
            self._choose_count(fetched.messages)
            self._position = fetched.messages.offsets[-1].as_py() + 1
        if fetched.end is not None:
            self._end = fetched.end
            self._position = max(self._position, fetched.end)
        # Messages beyond the range are read again by the next one. After an error that nobody sees,
        # because it came with the last messages, librdkafka fetches no more of the partition.
        is_lost = self._position > stop or fetched.failure is not None
        self._borrowed.next = None if is_lost else (topic, partition, self._position)
        if fetched.failure is not None and self._position < stop:
            self._note(fetched.failure)
        if fetched.messages is None:
            return None
        kept = fetched.messages.below(stop)
        return kept if len(kept) else None

    def _choose_count(self, messages: Messages) -> None:
        """Choose the messages of the next poll by the size of the last ones."""
        each = max(1, messages.size_bytes // len(messages))
        self._count = max(1, min(self._settings.batch_bytes // each, self._consumer.max_poll))

    def _note(self, failure: Failure) -> None:
        """Raise the error for a failure that does not pass, and note any other."""
        place = partition_path(self._range.topic, self._range.partition)
        key, brokers = self._settings.key, self._settings.brokers
        if failure.name in _OUT_OF_RANGE:
            raise self._lost()
        if failure.name in _UNKNOWN:
            raise InputError(
                f"{key}: the brokers {brokers} have no partition {place}: {failure.text}; the "
                "topic may have been deleted"
            )
        if failure.name in _REFUSED:
            raise InputError(
                f"{key}: the brokers {brokers} refuse to give {place}: {failure.text}; check the "
                f"user and its rights, and {key}.client"
            )
        if failure.name in _TOO_LARGE:
            raise InputError(
                f"{key}: a message at {place}, offset {self._position:,}, is larger than may be "
                f"fetched: {failure.text}; set {key}.client.'receive.message.max.bytes', or give "
                f"more than the {format_bytes(self._settings.memory_bytes)} of memory that it has"
            )
        self._failure = failure.text

    def _lost(self) -> MrflightError:
        topic, partition = self._range.topic, self._range.partition
        place, wanted = (topic, partition), self._position
        found = KafkaCluster(self._settings).offsets([place])[place]
        key, at = self._settings.key, partition_path(topic, partition)
        if wanted > found.latest:
            reason = (
                f"the partition ends at {found.latest:,}; the topic was made anew or lost messages "
                "with a broker: check that it is the right one, and read it as a new stream"
            )
        else:
            reason = (
                f"the first that is there is {found.earliest:,}, so {found.earliest - wanted:,} "
                "offsets were deleted by the topic's retention or by hand before they were read; "
                f"raise retention.ms of the topic, and begin at {found.earliest} if they are not "
                "needed"
            )
        message = f"{key}: {at} has no offset {wanted:,} any more: {reason}"
        return LostOffsetsError(message, topic, partition, wanted, found.earliest)

    def _silent(self) -> MrflightError:
        at = partition_path(self._range.topic, self._range.partition)
        key, brokers = self._settings.key, self._settings.brokers
        if self._end is not None and not self._consumer.last_error:
            return BrokerUnavailableError(
                f"{key}: {at} ends at {self._end:,}, and nothing was added in "
                f"{self._timeout_s:g} s, but offsets up to {self._range.stop:,} are to be read; a "
                "transaction may be open, or the topic lost messages with a broker"
            )
        reason = self._failure or self._consumer.last_error or "nothing arrived"
        return BrokerUnavailableError(
            f"{key}: {at} could not be read from offset {self._position:,} for "
            f"{self._timeout_s:g} s: the brokers {brokers} do not answer: {reason}; check that "
            "they run"
        )
