"""Sends messages to topics of Kafka, and reads them as an input does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.sources import open_source
from mrflight.sources.base import Source, Split
from mrflight.sources.kafka.client_settings import client_settings
from mrflight.sources.kafka.kafka_source import open_kafka
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.topic_offsets import KafkaCluster
from tests.services.kafka import Kafka
from tests.support.suite.waiting import hang_s

HERE = Path("/")


def send(kafka: Kafka, topic: str, values: Iterable[bytes | None], **more: Any) -> None:
    producer = kafka.producer()
    for value in values:
        producer.produce(topic, value, partition=more.get("partition", 0))
    assert producer.flush(hang_s()) == 0


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
