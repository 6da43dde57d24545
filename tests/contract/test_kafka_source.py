"""Tests of reading Kafka with a real broker: exact rows, offsets and errors."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.spec import InputSpec
from mrflight.errors import (
    BadRowError,
    BrokerUnavailableError,
    ColumnNotFoundError,
    InputError,
    JobFileError,
    LostOffsetsError,
)
from mrflight.sources import open_source
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.base import Source, Split
from mrflight.sources.kafka import consumer_pool
from mrflight.sources.kafka.client_settings import client_settings
from mrflight.sources.kafka.kafka_source import open_kafka
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.rejected_message import RejectedMessage
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from tests.services.kafka import Kafka

HERE = Path("/")
TIMEOUT_S = 30.0


class KeptRows(BadRowLog):
    """Keeps the bad rows."""

    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BadRow] = []

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        self.found += describe()


def send(kafka: Kafka, topic: str, values: Iterable[bytes | None], **more: Any) -> None:
    producer = kafka.producer()
    for value in values:
        producer.produce(topic, value, partition=more.get("partition", 0))
    assert producer.flush(TIMEOUT_S) == 0


def numbers(*numbers: int) -> list[bytes]:
    return [json.dumps({"n": each}).encode() for each in numbers]


def open_topic(kafka: Kafka, topic: str, **keys: Any) -> Source:
    spec = InputSpec(kafka=kafka.brokers, topic=topic, **{"format": "json", **keys})
    return open_source("trips", spec, HERE, {}, 1 << 20)


def rows_of(source: Source, splits: Iterable[Split] | None = None) -> list[dict[str, Any]]:
    reader = pickle.loads(pickle.dumps(source.reader))
    batches = [b for split in splits or source.splits for b in reader.read(split)]
    assert source.reader.schema is not None
    return pa.Table.from_batches(batches, source.reader.schema).to_pylist()


def read_numbers(kafka: Kafka, topic: str, *ranges: tuple[int, int]) -> list[int]:
    """Read ranges of partition 0, one after the other, as batches of a stream are."""
    spec = InputSpec(kafka=kafka.brokers, topic=topic, format="json", types={"n": "int64"})
    wanted = [OffsetRange(topic, 0, *each) for each in ranges]
    source = open_kafka("trips", spec, wanted, HERE)
    return [row["n"] for row in rows_of(source)]


def offsets(kafka: Kafka, topic: str) -> tuple[int, int]:
    spec = InputSpec(kafka=kafka.brokers, topic=topic)
    found = KafkaCluster(client_settings("trips", spec)).offsets([(topic, 0)])[topic, 0]
    return found.earliest, found.latest


def test_all_partitions_are_read_and_their_columns_inferred(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=3)
    sent = [{"id": i, "name": f"n{i}", "x": i / 2, "at": "2026-11-21T10:00:00Z"} for i in range(90)]
    producer = kafka.producer()
    for row in sent:
        producer.produce(topic, json.dumps(row), partition=row["id"] % 3)
    assert producer.flush(TIMEOUT_S) == 0
    source = open_topic(kafka, topic)
    assert [(s.path, s.start, s.stop) for s in source.splits] == [
        (f"kafka://{topic}/{partition}", 0, 30) for partition in range(3)
    ]
    assert source.reader.schema == pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("x", pa.float64()), ("at", pa.string())]
    )
    assert sorted(rows_of(source), key=lambda row: row["id"]) == sent


def test_a_split_that_is_divided_covers_the_same_messages(kafka: Kafka) -> None:
    topic = kafka.topic()
    send(kafka, topic, numbers(*range(1000)))
    source = open_topic(kafka, topic)
    pieces = source.reader.divide(source.splits[0], 7)
    assert len(pieces) == 7
    assert [row["n"] for row in rows_of(source, pieces)] == list(range(1000))
    assert [row["n"] for row in rows_of(source, reversed(pieces[:2]))] == [
        *range(142, 285), *range(142)
    ]  # fmt: skip


def test_metadata_are_columns(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = kafka.producer()
    headers = [("a", b"1"), ("a", b"\xff"), ("none", None)]
    producer.produce(topic, b'{"n": 1}', key=b"\x00k", headers=headers, timestamp=1_700_000_000_123)
    producer.produce(topic, None, key=b"gone", timestamp=1_700_000_000_124)
    producer.produce(topic, b'{"n": 3}', timestamp=1_700_000_000_125)
    assert producer.flush(TIMEOUT_S) == 0
    source = open_topic(kafka, topic, metadata=True)
    rows = rows_of(source)
    assert [row["n"] for row in rows] == [1, None, 3]
    assert [row["_offset"] for row in rows] == [0, 1, 2]
    assert {(row["_topic"], row["_partition"]) for row in rows} == {(topic, 0)}
    assert [row["_key"] for row in rows] == [b"\x00k", b"gone", None]
    assert [row["_timestamp"].timestamp() for row in rows] == [
        pytest.approx(1_700_000_000.123 + i / 1000) for i in range(3)
    ]
    first, *others = [row["_headers"] for row in rows]
    assert first == [{"key": key, "value": value} for key, value in headers]
    assert not any(others)


def test_raw_messages_are_one_column(kafka: Kafka) -> None:
    topic = kafka.topic()
    values = [b"", None, b"\x00\xff", b"a\nb"]
    send(kafka, topic, values)
    assert [row["value"] for row in rows_of(open_topic(kafka, topic, format="raw"))] == values


@pytest.mark.parametrize("bad", [[0], [150], [299], [0, 1, 2], list(range(300))])
def test_poison_is_an_error_or_rejected(kafka: Kafka, bad: list[int]) -> None:
    topic = kafka.topic()
    good = [i for i in range(300) if i not in bad]
    send(kafka, topic, [b'{"n": ' + b"\xff{" if i in bad else numbers(i)[0] for i in range(300)])
    types = {"n": "int64"}
    with pytest.raises(BadRowError, match=rf"kafka://{topic}/0, offset {bad[0]}: .*bad_rows"):
        rows_of(open_topic(kafka, topic, types=types, columns=["n"]))
    source = open_topic(kafka, topic, types=types, columns=["n"], bad_rows="skip")
    log = KeptRows()
    reader = source.reader.with_bad_rows(log)
    found = [n for b in reader.read(source.splits[0]) for n in b.column("n").to_pylist()]
    assert found == good
    assert log.rows == len(bad)
    assert [each.line for each in log.found] == bad
    one = log.found[0]
    assert isinstance(one, RejectedMessage)
    assert (one.topic, one.partition, one.offset) == (topic, 0, bad[0])
    assert (one.key, one.value, one.timestamp > 0) == (None, b'{"n": \xff{', True)
    assert "\\xff" in one.text


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([b'{"n": 1}{"n": 2}', b"   "], [0, 1]),
        ([b'{"n":', b"1}", b'{"n": 1}{"n": 2}'], [0, 1, 2]),
        ([b'{"n": 1}', b"", b'{"n": 2}'], [1]),
        ([b'{"n": 1}', None, b'{"n": 2}'], [1]),
        ([b"[1]", b'{"n": 1}', b"7", b"null"], [0, 2, 3]),
        ([b'{"n": "text"}', b'{"n": 1}'], [0]),
        ([b'{"n": 1, "other": 2}', b'{"n": 1}'], [0]),
        ([b' {\r\n"n": 1\n} ', b'{"n": 1}'], []),
        ([b'{"n": 1, "n": 2}', b'{"n": 1}'], [0]),
    ],
)
def test_a_message_is_one_object(
    kafka: Kafka, values: list[bytes | None], wrong: list[int]
) -> None:
    topic = kafka.topic()
    send(kafka, topic, values)
    log = KeptRows()
    spec = InputSpec(kafka=kafka.brokers, topic=topic, format="json", bad_rows="skip")
    schema = pa.schema([("n", pa.int64())])
    source = open_kafka("trips", spec, [OffsetRange(topic, 0, 0, len(values))], HERE, schema=schema)
    batches = list(source.reader.with_bad_rows(log).read(source.splits[0]))
    assert [each.line for each in log.found] == wrong
    assert sum(b.num_rows for b in batches) == len(values) - len(wrong)


def test_aborted_transactions_are_not_read(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(TIMEOUT_S)
    for first, is_committed in ((0, True), (10, False), (20, True), (30, False)):
        producer.begin_transaction()
        for n in range(first, first + 10):
            producer.produce(topic, numbers(n)[0], partition=0)
        if is_committed:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    assert offsets(kafka, topic) == (0, 44)  # with a marker at the end of each
    committed = [*range(10), *range(20, 30)]
    assert read_numbers(kafka, topic, (0, 44)) == committed
    assert read_numbers(kafka, topic, (0, 11), (11, 22), (22, 33), (33, 44)) == committed
    assert read_numbers(kafka, topic, (11, 22)) == []
    # An open transaction is not read, and does not stop what comes before it.
    producer.begin_transaction()
    producer.produce(topic, numbers(99)[0], partition=0)
    producer.flush(TIMEOUT_S)
    assert offsets(kafka, topic) == (0, 44)
    assert read_numbers(kafka, topic, (33, 44)) == []
    producer.abort_transaction(TIMEOUT_S)


def test_offsets_that_were_compacted_are_passed(kafka: Kafka) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
        "file.delete.delay.ms": "100",
    }
    topic = kafka.topic(config=config)
    producer = kafka.producer(linger_ms=0)
    for n in range(30):
        producer.produce(topic, numbers(n)[0], key=b"same" if n < 20 else str(n), partition=0)
        producer.flush(TIMEOUT_S)
    found: list[int] = []
    for n in range(100, 400):  # each rolls the segment that is old enough, until one is compacted
        producer.produce(topic, numbers(n)[0], key=str(n), partition=0)
        producer.flush(TIMEOUT_S)
        found = read_numbers(kafka, topic, (0, 30))
        if len(found) < 30:
            break
    assert 11 <= len(found) < 30
    assert found[-11:] == list(range(19, 30))
    assert read_numbers(kafka, topic, (0, 10)) == [n for n in found if n < 10]


def test_retention_that_has_passed_is_no_gap(kafka: Kafka) -> None:
    from confluent_kafka import TopicPartition

    topic = kafka.topic()
    send(kafka, topic, numbers(*range(100)))
    admin = kafka.admin()
    for future in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
        future.result(TIMEOUT_S)
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
    assert producer.flush(TIMEOUT_S) == 0
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


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ({"topic": "TOPICS"}, InputError, "has no topic 'TOPICS'"),
        ({"topic": None, "topic_pattern": "no-.*"}, InputError, "no topic matches 'no-"),
        ({"start": {"5": 1}}, InputError, "has 1 partitions, and no 5"),
        ({"start": {"0": 99}}, InputError, "no offset 99 yet: it ends at 1"),
        ({"columns": ["m"]}, ColumnNotFoundError, "has no column 'm'"),
        ({"client": {"no.such.setting": "1"}}, JobFileError, "no.such.setting"),
        ({"client": {"sasl.password": "env:NO_SUCH"}}, JobFileError, "no variable NO_SUCH"),
    ],
)
def test_what_is_wrong_is_refused(
    kafka: Kafka, keys: dict[str, Any], kind: type[Exception], message: str
) -> None:
    topic = kafka.topic()
    send(kafka, topic, numbers(1))
    with pytest.raises(kind, match=message):
        rows_of(open_topic(kafka, **{"topic": topic, **keys}))


def test_a_read_goes_on_after_the_broker_was_killed(own_kafka: Kafka) -> None:
    topic = own_kafka.topic()
    padding = b" " * 1000
    send(own_kafka, topic, [value + padding for value in numbers(*range(20_000))])
    spec = InputSpec(kafka=own_kafka.brokers, topic=topic, format="raw", metadata=True)
    wanted = [OffsetRange(topic, 0, 0, 20_000)]
    source = open_kafka("trips", spec, wanted, HERE, memory_bytes=1 << 20)
    consumer_pool.close_idle()
    batches = source.reader.read(source.splits[0])
    found = next(batches).column("_offset").to_pylist()
    assert len(found) < 10_000  # the rest is still to be fetched
    own_kafka.server.kill()
    own_kafka.restart()
    found += [offset for batch in batches for offset in batch.column("_offset").to_pylist()]
    assert found == list(range(20_000))


def test_a_broker_that_comes_back_is_waited_for(own_kafka: Kafka) -> None:
    topic = own_kafka.topic()
    send(own_kafka, topic, numbers(*range(100)))
    assert read_numbers(own_kafka, topic, (0, 50)) == list(range(50))
    consumer_pool.close_idle()
    own_kafka.server.kill()
    spec = InputSpec(kafka=own_kafka.brokers, topic=topic, format="json", types={"n": "int64"})
    schema = pa.schema([("n", pa.int64())])
    wanted = [OffsetRange(topic, 0, 50, 100)]
    source = open_kafka("trips", spec, wanted, HERE, schema=schema)
    from dataclasses import replace

    reader = replace(source.reader, timeout_s=1.0)
    with pytest.raises(BrokerUnavailableError, match=own_kafka.brokers) as caught:
        list(reader.read(source.splits[0]))
    assert caught.value.retryable
    with pytest.raises(BrokerUnavailableError, match=own_kafka.brokers):
        KafkaCluster(client_settings("trips", spec), timeout_s=1.0).topics([topic])
    own_kafka.restart()
    assert [row["n"] for row in rows_of(source)] == list(range(50, 100))
