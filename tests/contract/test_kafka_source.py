"""Tests of reading Kafka with a real broker: exact rows, offsets and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.errors import (
    BadRowError,
    ColumnNotFoundError,
    InputError,
    JobFileError,
)
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.kafka.kafka_source import open_kafka
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.rejected_message import RejectedMessage
from tests.services.kafka import Kafka
from tests.support.streams.kafka_topics import (
    HERE,
    numbers,
    open_topic,
    rows_of,
    send,
)
from tests.support.suite.waiting import hang_s


class KeptRows(BadRowLog):
    """Keeps the bad rows."""

    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BadRow] = []

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        self.found += describe()


def test_all_partitions_are_read_and_their_columns_inferred(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=3)
    sent = [{"id": i, "name": f"n{i}", "x": i / 2, "at": "2026-11-21T10:00:00Z"} for i in range(90)]
    producer = kafka.producer()
    for row in sent:
        producer.produce(topic, json.dumps(row), partition=row["id"] % 3)
    assert producer.flush(hang_s()) == 0
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
    assert producer.flush(hang_s()) == 0
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
