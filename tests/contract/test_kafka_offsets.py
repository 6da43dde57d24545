"""Tests of which offsets of Kafka are read, with a real broker: transactions, retention, faults."""

from __future__ import annotations

import itertools
import pickle
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import (
    BrokerUnavailableError,
    LostOffsetsError,
)
from mrflight.sources import open_source
from mrflight.sources.kafka import consumer_pool
from mrflight.sources.kafka.client_settings import client_settings
from mrflight.sources.kafka.kafka_source import open_kafka
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from tests.services.kafka import Kafka
from tests.support.streams.kafka_topics import (
    HERE,
    numbers,
    offsets,
    open_topic,
    read_numbers,
    rows_of,
    send,
)
from tests.support.suite.waiting import await_that, hang_s


def test_aborted_transactions_are_not_read(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(hang_s())
    for first, is_committed in ((0, True), (10, False), (20, True), (30, False)):
        producer.begin_transaction()
        for n in range(first, first + 10):
            producer.produce(topic, numbers(n)[0], partition=0)
        if is_committed:
            producer.commit_transaction(hang_s())
        else:
            producer.flush(hang_s())
            producer.abort_transaction(hang_s())
    # Each has a marker at its end, which the broker may write after it has answered.
    await_that(lambda: offsets(kafka, topic) == (0, 44), "the ends of all transactions")
    committed = [*range(10), *range(20, 30)]
    assert read_numbers(kafka, topic, (0, 44)) == committed
    assert read_numbers(kafka, topic, (0, 11), (11, 22), (22, 33), (33, 44)) == committed
    assert read_numbers(kafka, topic, (11, 22)) == []
    # An open transaction is not read, and does not stop what comes before it.
    producer.begin_transaction()
    producer.produce(topic, numbers(99)[0], partition=0)
    producer.flush(hang_s())
    assert offsets(kafka, topic) == (0, 44)
    assert read_numbers(kafka, topic, (33, 44)) == []
    producer.abort_transaction(hang_s())


def test_offsets_that_were_compacted_are_passed(kafka: Kafka) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    topic = kafka.topic(config=config)
    producer = kafka.producer(linger_ms=0)
    for n in range(30):
        producer.produce(topic, numbers(n)[0], key=b"same" if n < 20 else str(n), partition=0)
        producer.flush(hang_s())
    later = itertools.count(100)

    def is_compacted() -> bool:
        """Roll the segment if it is old enough, and look for what is left of those before it."""
        producer.produce(topic, numbers(next(later))[0], key=b"other", partition=0)
        producer.flush(hang_s())
        found = read_numbers(kafka, topic, (0, 30))
        assert found[-11:] == list(range(19, 30))
        return len(found) == 11

    await_that(is_compacted, "the compaction of all but the last of a key")
    assert read_numbers(kafka, topic, (0, 10)) == []
    assert read_numbers(kafka, topic, (10, 25)) == list(range(19, 25))


def test_retention_that_has_passed_is_no_gap(kafka: Kafka) -> None:
    from confluent_kafka import TopicPartition

    topic = kafka.topic()
    send(kafka, topic, numbers(*range(100)))
    admin = kafka.admin()
    for future in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
        future.result(hang_s())
    with pytest.raises(LostOffsetsError, match=r"no offset 10 any more.*is 40, so 30 offsets") as e:
        read_numbers(kafka, topic, (10, 100))
    copy = pickle.loads(pickle.dumps(e.value))
    assert (copy.topic, copy.kafka_partition, copy.wanted, copy.earliest) == (topic, 0, 10, 40)
    assert not copy.retryable
    assert read_numbers(kafka, topic, (40, 100)) == list(range(40, 100))
    with pytest.raises(LostOffsetsError, match="ends at 100; the topic was made anew"):
        read_numbers(kafka, topic, (150, 160))
    assert [row["n"] for row in rows_of(open_topic(kafka, topic))] == list(range(40, 100))
    with pytest.raises(LostOffsetsError, match=r"start: .* has no offset 3 any more"):
        open_topic(kafka, topic, start={"0": 3})


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        ({"0": 7}, 7),
        ("2023-11-14T22:13:24Z", 4),
        ("2023-11-14T22:13:23.500+00:00", 4),
        ("2030-01-01", 10),
    ],
)
def test_a_read_begins_at_its_start(kafka: Kafka, start: Any, first: int) -> None:
    topic = kafka.topic()
    producer = kafka.producer()
    for n in range(10):
        time = (1_700_000_000 + n) * 1000
        producer.produce(topic, numbers(n)[0], partition=0, timestamp=time)
    assert producer.flush(hang_s()) == 0
    source = open_topic(kafka, topic, start=start, types={"n": "int64"})
    assert [row["n"] for row in rows_of(source)] == list(range(first, 10))


def test_topics_are_found_by_a_pattern(kafka: Kafka) -> None:
    topics = sorted([kafka.topic(), kafka.topic(partitions=2)])
    for number, topic in enumerate(topics):
        send(kafka, topic, numbers(number))
    spec = InputSpec(
        kafka=kafka.brokers, topic_pattern="|".join(topics), format="json", metadata=True
    )
    rows = rows_of(open_source("trips", spec, HERE, {}, 1 << 20))
    assert [(row["_topic"], row["n"]) for row in rows] == [(t, i) for i, t in enumerate(topics)]
    found = KafkaCluster(client_settings("trips", spec)).topics(topics)
    assert [each.name for each in found.topics] == topics
    assert len({each.id for each in found.topics}) == 2
    assert len(found.partitions) == 3
    assert found.cluster_id


def test_a_consumer_goes_on_with_the_next_range(kafka: Kafka) -> None:
    topic = kafka.topic()
    send(kafka, topic, numbers(*range(3000)))
    consumer_pool.close_idle()
    ranges = [(at, at + 500) for at in range(0, 3000, 500)]
    assert read_numbers(kafka, topic, *ranges) == list(range(3000))
    (idle,) = consumer_pool._idle
    assert idle.next == (topic, 0, 3000)


def test_consumers_of_several_partitions_are_kept(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=6)
    for partition in range(6):
        send(kafka, topic, numbers(*range(30)), partition=partition)
    spec = InputSpec(kafka=kafka.brokers, topic=topic, format="json")
    schema = pa.schema([("n", pa.int64())])
    consumer_pool.close_idle()
    for start in (0, 10, 20):
        wanted = [OffsetRange(topic, partition, start, start + 10) for partition in range(6)]
        source = open_kafka("trips", spec, wanted, HERE, schema=schema)
        assert [row["n"] for row in rows_of(source)] == [*range(start, start + 10)] * 6
    assert len(consumer_pool._idle) == consumer_pool.MAX_IDLE
    consumer_pool.close_idle()
    assert not consumer_pool._idle


def test_all_goes_on_when_a_broker_that_was_killed_comes_back(own_kafka: Kafka) -> None:
    """A read that has begun, one that has not, and a client that asks for offsets."""
    long, short = own_kafka.topic(), own_kafka.topic()
    send(own_kafka, long, [value + b" " * 1000 for value in numbers(*range(20_000))])
    send(own_kafka, short, numbers(*range(100)))
    spec = InputSpec(kafka=own_kafka.brokers, topic=long, format="raw", metadata=True)
    wanted = [OffsetRange(long, 0, 0, 20_000)]
    source = open_kafka("trips", spec, wanted, HERE, memory_bytes=1 << 20)
    batches = source.reader.read(source.splits[0])
    found = next(batches).column("_offset").to_pylist()
    assert len(found) < 10_000  # the rest is still to be fetched
    assert read_numbers(own_kafka, short, (0, 50)) == list(range(50))
    asking = KafkaCluster(client_settings("trips", spec), timeout_s=5.0)

    def end() -> int | None:
        with suppress(BrokerUnavailableError):
            return asking.offsets([(short, 0)])[short, 0].latest
        return None

    await_that(lambda: end() == 100, "the end of the short topic")
    consumer_pool.close_idle()
    own_kafka.server.kill()

    spec = InputSpec(kafka=own_kafka.brokers, topic=short, format="json", types={"n": "int64"})
    schema = pa.schema([("n", pa.int64())])
    later = open_kafka("trips", spec, [OffsetRange(short, 0, 50, 100)], HERE, schema=schema)
    hasty = replace(later.reader, timeout_s=1.0)
    with pytest.raises(BrokerUnavailableError, match=own_kafka.brokers) as caught:
        list(hasty.read(later.splits[0]))
    assert caught.value.retryable
    with pytest.raises(BrokerUnavailableError, match=own_kafka.brokers):
        KafkaCluster(client_settings("trips", spec), timeout_s=1.0).topics([short])

    own_kafka.restart()
    found += [offset for batch in batches for offset in batch.column("_offset").to_pylist()]
    assert found == list(range(20_000))
    assert [row["n"] for row in rows_of(later)] == list(range(50, 100))
    await_that(lambda: end() == 100, "the new epoch of the leader")
