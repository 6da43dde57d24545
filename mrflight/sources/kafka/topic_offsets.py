"""What the driver asks a Kafka cluster: its topics, their partitions, and their offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mrflight.errors import BrokerUnavailableError, InputError
from mrflight.sources.kafka.client_errors import import_confluent_kafka, kafka_errors, translate
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.system.signals import run_interruptibly

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

DEFAULT_TIMEOUT_S = 30.0
_LATEST, _EARLIEST = -1, -2
"""What stands for times in Kafka's requests for offsets."""
_MAX_NAMED = 5

Partition = tuple[str, int]
"""The topic and the number of a partition."""
NO_NOTES: Mapping[Partition, str] = {}


class Topic(msgspec.Struct, frozen=True):
    """A topic that is read."""

    name: str
    id: str
    """Its Uuid, which a topic that was made anew under the same name does not have."""
    partitions: tuple[int, ...]


class PartitionOffsets(msgspec.Struct, frozen=True):
    """The offsets of a partition when it was asked for them."""

    earliest: int
    latest: int
    """The last stable offset: committed messages are all below it."""


class Topics(msgspec.Struct, frozen=True):
    """The topics of an input, as the cluster has them."""

    cluster_id: str
    topics: tuple[Topic, ...]
    """By name."""

    @property
    def partitions(self) -> list[Partition]:
        """All partitions, by topic and number."""
        return [(topic.name, number) for topic in self.topics for number in topic.partitions]

    def topic(self, name: str) -> Topic:
        return next(topic for topic in self.topics if topic.name == name)


class KafkaCluster:
    """A connection to a cluster that only asks. It connects when it is asked first.

    Its methods wait for brokers that are away, and raise BrokerUnavailableError after the timeout;
    InputError for what the brokers refuse, JobFileError for wrong settings.
    """

    def __init__(self, settings: ClientSettings, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        import_confluent_kafka(settings.key)
        self._settings = settings
        self._timeout_s = timeout_s
        self._client = self._connect()
        self._consumer: Consumer | None = None

    def _connect(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        with kafka_errors(self._settings, "connect"):
            return AdminClient(self._settings.of_admin())

    def topics(self, names: Sequence[str] = (), pattern: str | None = None) -> Topics:
        """Return the topics with these names, or whose whole names match the pattern."""
        with kafka_errors(self._settings, "list the topics"):
            cluster = self._client.list_topics(timeout=self._timeout_s)
        known = sorted(cluster.topics)
        if pattern is not None:
            public = (name for name in known if not name.startswith("__"))
            names = [name for name in public if re.fullmatch(pattern, name)]
            if not names:
                raise InputError(
                    f"{self._settings.key}.topic_pattern: no topic matches {pattern!r}; the "
                    f"cluster has {_listed(known)}"
                )
        for name in names:
            if name not in known:
                raise self._unknown(name, known)
        # Nothing describes the cluster: librdkafka (2.16) ends the process if a broker that is
        # fenced answers that, as there is neither a broker nor a topic in the answer.
        return Topics(str(cluster.cluster_id), self._described(sorted(set(names))))

    def _described(self, names: Sequence[str]) -> tuple[Topic, ...]:
        from confluent_kafka import TopicCollection

        found = self._client.describe_topics(TopicCollection(list(names)))
        described = [self._result(found[name], f"describe the topic {name}") for name in names]
        return tuple(
            Topic(each.name, str(each.topic_id), tuple(sorted(p.id for p in each.partitions)))
            for each in described
        )

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, PartitionOffsets]:
        """Return the first offset of each partition, and the end of its committed messages."""
        wanted = list(partitions)
        earliest = self._list(wanted, _EARLIEST)
        latest = self._list(wanted, _LATEST)
        return {each: PartitionOffsets(earliest[each], latest[each]) for each in wanted}

    def offsets_at(self, partitions: Iterable[Partition], time: datetime) -> dict[Partition, int]:
        """Return the offset of the first message of each partition at a time or after it.

        A partition that has none has its end.
        """
        wanted = list(partitions)
        at = self._list(wanted, round(time.timestamp() * 1000))
        after_all = [each for each in wanted if at[each] < 0]
        ends = self._list(after_all, _LATEST) if after_all else {}
        return {each: ends.get(each, at[each]) for each in wanted}

    def publish(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        notes: Mapping[Partition, str] = NO_NOTES,
    ) -> None:
        """Write offsets as those of a consumer group, with ``notes`` that are stored with them."""
        answer = self.begin_publishing(group, offsets, notes)
        self._result(answer, f"publish the offsets of group {group}")

    def begin_publishing(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        notes: Mapping[Partition, str] = NO_NOTES,
    ) -> Future[Any]:
        """Do as `publish` without waiting; the future raises KafkaException if it fails."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        places = [
            TopicPartition(*place, offset, metadata=notes.get(place, ""))
            for place, offset in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group, places)]
        with kafka_errors(self._settings, f"publish the offsets of group {group}"):
            (answer,) = self._client.alter_consumer_group_offsets(
                request, request_timeout=self._timeout_s
            ).values()
        future: Future[Any] = answer
        return future

    def published(
        self, group: str, partitions: Iterable[Partition]
    ) -> dict[Partition, tuple[int, str]]:
        """Return the offsets of a consumer group, with their notes; none that it does not have."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        request = [ConsumerGroupTopicPartitions(group, [TopicPartition(*p) for p in partitions])]
        what = f"read the offsets of group {group}"
        with kafka_errors(self._settings, what):
            (answer,) = self._client.list_consumer_group_offsets(
                request, request_timeout=self._timeout_s
            ).values()
        found = self._result(answer, what).topic_partitions
        return {
            (each.topic, each.partition): (each.offset, each.metadata or "")
            for each in found
            if each.offset >= 0 and each.error is None
        }

    def _list(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, int]:
        """Return the first offset of each partition at a time; negative if there is none.

        A consumer asks, because librdkafka (2.16) ends the process if a broker that begins answers
        the request of an admin client with FENCED_LEADER_EPOCH: it asserts that there is a result.
        """
        from confluent_kafka import Consumer, TopicPartition

        if not partitions:
            return {}
        asked = [TopicPartition(*each, time_ms) for each in partitions]
        what = f"ask for offsets of {', '.join(sorted({topic for topic, _ in partitions}))}"
        try:
            with kafka_errors(self._settings, what):
                if self._consumer is None:
                    self._consumer = Consumer(self._settings.of_consumer())
                ask = partial(self._consumer.offsets_for_times, asked, timeout=self._timeout_s)
                found = run_interruptibly(ask)
            for each in found:
                if each.error is not None:
                    raise translate(each.error, self._settings, what)
        except BrokerUnavailableError:
            # librdkafka asks with the epoch that a leader had when it was looked up first, and is
            # refused for 15 minutes after the broker was restarted. Another client looks.
            self._consumer = None
            raise
        return {(each.topic, each.partition): each.offset for each in found}

    def _result(self, future: Future[Any], what: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(self._timeout_s + 5)
        except KafkaException as error:
            raise translate(error.args[0], self._settings, what) from error
        except TimeoutError as error:
            raise BrokerUnavailableError(
                f"{self._settings.key}: {what}: the brokers {self._settings.brokers} did not "
                f"answer within {self._timeout_s:g} s; check that they run"
            ) from error

    def _unknown(self, name: str, known: Sequence[str]) -> InputError:
        import difflib  # for few processes

        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return InputError(
            f"{self._settings.key}.topic: the cluster of {self._settings.brokers} has no topic "
            f"{name!r}; {hint}It has {_listed(known)}"
        )


def _listed(names: Sequence[str]) -> str:
    public = [name for name in names if not name.startswith("__")]
    if not public:
        return "no topics"
    shown = ", ".join(public[:_MAX_NAMED])
    others = len(public) - _MAX_NAMED
    return f"{shown} and {others:,} more" if others > 0 else shown
