"""Tests of the formats of messages with a real broker: exact rows, and what is rejected."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.text_options import CsvOptions
from mrflight.errors import BadRowError, BrokerUnavailableError, InputError
from mrflight.sources import open_source
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Source
from mrflight.sources.kafka import consumer_pool
from mrflight.sources.kafka.drain import drain_library
from tests.services.kafka import Kafka
from tests.support.streams.schema_registry import schema_registry
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {
        "name": "place",
        "type": {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "zones", "type": {"type": "array", "items": "int"}}],
        },
    },
]
AVRO = {"type": "record", "name": "Trip", "namespace": "taxi", "fields": FIELDS}


def produced(kafka: Kafka, values: Iterable[bytes | None]) -> str:
    topic = kafka.topic()
    producer = kafka.producer()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(hang_s()) == 0
    return topic


def opened(kafka: Kafka, topic: str, folder: Path = Path("/"), **keys: Any) -> Source:
    spec = InputSpec(kafka=kafka.brokers, topic=topic, **keys)
    return open_source("trips", spec, folder, {}, 1 << 20)


def rows_of(source: Source, log: BadRowLog | None = None) -> list[dict[str, Any]]:
    reader = source.reader if log is None else source.reader.with_bad_rows(log)
    return [row for split in source.splits for b in reader.read(split) for row in b.to_pylist()]


def stream(*batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def test_csv_records_are_rows(kafka: Kafka) -> None:
    topic = produced(kafka, [b'1,"a, b",2.5', b"2,c,3\r\n", b"3,,4\n"])
    options = CsvOptions(column_names=["id", "name", "x"])
    rows = rows_of(opened(kafka, topic, format="csv", csv=options))
    assert rows == [
        {"id": 1, "name": "a, b", "x": 2.5},
        {"id": 2, "name": "c", "x": 3.0},
        {"id": 3, "name": "", "x": 4.0},
    ]
    numbered = opened(kafka, topic, format="csv", columns=["f2", "f0"], types={"f0": "int32"})
    assert numbered.reader.schema == pa.schema([("f2", pa.float64()), ("f0", pa.int32())])
    assert rows_of(numbered)[0] == {"f2": 2.5, "f0": 1}


def test_csv_that_is_not_one_record_is_rejected(kafka: Kafka) -> None:
    values = [b"1,2", b"1", b"", None, b"1,2\n3,4", b'"1', b"x,2", b"5,6"]
    topic = produced(kafka, values)
    types = {"f0": "int64", "f1": "int64"}
    source = opened(kafka, topic, format="csv", types=types, bad_rows="skip")
    log = BadRowLog()
    assert rows_of(source, log) == [{"f0": 1, "f1": 2}, {"f0": 5, "f1": 6}]
    assert log.rows == 6
    with pytest.raises(BadRowError, match=r"/0, offset 1: "):
        rows_of(opened(kafka, topic, format="csv", types=types))


def test_arrow_streams_are_rows(kafka: Kafka) -> None:
    one = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    other = pa.record_batch({"b": ["y"], "a": [3]})
    empty = one.slice(0, 0)
    wrong = pa.record_batch({"a": ["text"], "b": ["z"]})
    cut = stream(one)[:-40]
    values = [stream(one, one), stream(empty), stream(other), stream(wrong), b"junk", b"", cut]
    topic = produced(kafka, values)
    source = opened(kafka, topic, format="arrow", metadata=True, bad_rows="skip")
    log = BadRowLog()
    found = [(row["a"], row["b"], row["_offset"]) for row in rows_of(source, log)]
    assert found == [(1, "x", 0), (2, None, 0), (1, "x", 0), (2, None, 0), (3, "y", 2)]
    assert log.rows == len(values) - 3
    with pytest.raises(BadRowError, match=r"offset 3: .*column 'a' is string, not int64"):
        rows_of(opened(kafka, topic, format="arrow"))


def test_json_has_the_types_of_a_schema_file(kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "trip.avsc").write_text(json.dumps(AVRO))
    row = {"id": 7, "name": None, "day": "2026-11-21", "at": "2026-11-21T12:00:00Z"}
    topic = produced(kafka, [json.dumps({**row, "place": {"zones": [1]}, "other": 1}).encode()])
    source = opened(kafka, topic, tmp_path, format="json", schema="trip.avsc")
    assert rows_of(source) == [
        {"id": 7, "name": None, "day": NOON.date(), "at": NOON, "place": {"zones": [1]}}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"type": "string"}',
        '{"type": "record", "name": "T"}',
        '{"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]}',
        '{"type":"record","name":"T","fields":[{"name":"t","type":["int","string"]}]}',
    ],
)
def test_a_schema_file_that_is_wrong_is_refused(kafka: Kafka, tmp_path: Path, text: str) -> None:
    (tmp_path / "trip.avsc").write_text(text)
    topic = produced(kafka, [b"{}"])
    with refused(InputError, "inputs.trips.schema"):
        opened(kafka, topic, tmp_path, format="json", schema="trip.avsc")


def avro(row: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), row)
    return stream.getvalue()


def trip(number: int) -> dict[str, Any]:
    name = None if number % 2 else f"n{number}"
    place = {"zones": list(range(number))}
    return {"id": number, "name": name, "day": NOON.date(), "at": NOON, "place": place}


def test_avro_records_of_a_schema_file(kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "trip.avsc").write_text(json.dumps(AVRO))
    good = [avro(trip(n)) for n in range(3)]
    topic = produced(kafka, [*good, b"", good[2] + b"x", good[2][:-1], b"\xff" * 20, None])
    keys = {"format": "avro", "schema": "trip.avsc"}
    source = opened(kafka, topic, tmp_path, **keys, bad_rows="skip")
    log = BadRowLog()
    assert rows_of(source, log) == [trip(n) for n in range(3)]
    assert log.rows == 5
    some = opened(kafka, topic, tmp_path, **keys, columns=["name", "id"], bad_rows="skip")
    assert rows_of(some)[1:] == [{"name": None, "id": 1}, {"name": "n2", "id": 2}]


def test_avro_records_of_a_registry(kafka: Kafka) -> None:
    newer = {**AVRO, "fields": [*FIELDS, {"name": "tip", "type": "double", "default": 0.0}]}
    schemas = {3: json.dumps(AVRO), 8: json.dumps(newer)}
    with schema_registry(schemas) as (url, asked):
        values = [
            b"\0" + (3).to_bytes(4, "big") + avro(trip(1)),
            b"\0" + (8).to_bytes(4, "big") + avro({**trip(2), "tip": 0.5}, newer),
            b"\0" + (99).to_bytes(4, "big") + avro(trip(1)),
            avro(trip(1)),
        ]
        topic = produced(kafka, values)
        source = opened(kafka, topic, format="avro", registry=url, bad_rows="skip")
        log = BadRowLog()
        assert rows_of(source, log) == [{**trip(1), "tip": None}, {**trip(2), "tip": 0.5}]
        assert log.rows == 2
        with pytest.raises(BadRowError, match=r"offset 2: .*has no schema 99"):
            rows_of(opened(kafka, topic, format="avro", registry=url))
        assert asked.count("/schemas/ids/3") == asked.count("/schemas/ids/8") == 1
    with pytest.raises(BrokerUnavailableError, match=r"registry: http://.* does not answer"):
        opened(kafka, topic, format="avro", registry=f"{url}/gone")


def test_protobuf_messages_are_rows(kafka: Kafka, tmp_path: Path) -> None:
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    files = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    depends = ["google/protobuf/timestamp.proto"]
    file = FileDescriptorProto(name="t.proto", package="taxi", syntax="proto3", dependency=depends)
    type = file.message_type.add(name="Trip")
    type.field.add(name="id", number=1, type=3, label=1)
    type.field.add(name="name", number=2, type=9, label=1)
    type.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    type.field.add(name="zones", number=4, type=5, label=3)
    files.file.append(file)
    (tmp_path / "trip.desc").write_bytes(files.SerializeToString())
    pool = DescriptorPool()
    for each in files.file:
        pool.Add(each)
    message = GetMessageClass(pool.FindMessageTypeByName("taxi.Trip"))
    one = message(id=1, name="x", at=NOON, zones=[1, 2]).SerializeToString()
    topic = produced(kafka, [one, b"", b"\xff", None])
    keys = {"format": "protobuf", "schema": "trip.desc", "message": "taxi.Trip"}
    source = opened(kafka, topic, tmp_path, **keys, bad_rows="skip")
    log = BadRowLog()
    assert rows_of(source, log) == [
        {"id": 1, "name": "x", "at": NOON, "zones": [1, 2]},
        {"id": 0, "name": "", "at": None, "zones": []},
    ]
    assert log.rows == 2
    with refused(InputError, "inputs.trips.message"):
        opened(kafka, topic, tmp_path, **{**keys, "message": "Trip"})
    (tmp_path / "trip.desc").write_bytes(b"junk")
    with refused(InputError, "inputs.trips.schema"):
        opened(kafka, topic, tmp_path, **keys)


@pytest.mark.parametrize("is_drained", [True, False])
def test_both_consumers_give_the_same_messages(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, is_drained: bool
) -> None:
    topic = kafka.topic()
    producer = kafka.producer()
    for n in range(5_000):
        value = None if n % 7 == 0 else bytes([n % 256]) * (n % 300)
        key = None if n % 3 == 0 else b"k" * (n % 5)
        headers = [("h", None if n % 2 else b"v"), ("\u00e9", b"")] if n % 11 == 0 else None
        producer.produce(topic, value, key, 0, headers=headers, timestamp=1_000 + n)
    assert producer.flush(hang_s()) == 0
    consumer_pool.close_idle()
    if not is_drained:
        monkeypatch.setattr(consumer_pool, "drain_library", lambda: None)
    elif drain_library() is None:
        pytest.skip("the kernel is not built, or the wheel has no librdkafka")
    rows = rows_of(opened(kafka, topic, format="raw", metadata=True))
    consumer_pool.close_idle()
    assert [row["_offset"] for row in rows] == list(range(5_000))
    for n, row in enumerate(rows):
        assert row["value"] == (None if n % 7 == 0 else bytes([n % 256]) * (n % 300))
        assert row["_key"] == (None if n % 3 == 0 else b"k" * (n % 5))
        assert row["_timestamp"].timestamp() == pytest.approx(1 + n / 1000)
        headers = [("h", None if n % 2 else b"v"), ("\u00e9", b"")] if n % 11 == 0 else None
        found = row["_headers"] and [(each["key"], each["value"]) for each in row["_headers"]]
        assert found == headers
