"""Tests of which keys of an input from Kafka go together."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.job_file import decode_job
from mrflight.errors import JobFileError

KAFKA = {"kafka": "b1:9092,b2:9092", "topic": "trips", "format": "json"}


def decoded(**keys: Any) -> InputSpec:
    """Decode a job with an input of Kafka, without the keys that are None."""
    section = {name: value for name, value in (KAFKA | keys).items() if value is not None}
    document = {"job": {"name": "t"}, "inputs": {"trips": section}, "output": {"table": "out"}}
    return decode_job(document).inputs["trips"]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"topic": None, "topics": ["a", "b"]},
        {"topic": None, "topic_pattern": "trips-.*"},
        {"start": "latest"},
        {"start": {"0": 120}},
        {"start": "2026-11-21T10:00:00Z"},
        {"format": "avro", "schema": "trips.avsc"},
        {"format": "avro", "registry": "http://localhost:8081"},
        {"format": "avro", "registry": "env:REGISTRY"},
        {"format": "protobuf", "schema": "trips.desc", "message": "taxi.Trip"},
        {"format": "raw", "metadata": True},
        {"columns": ["a"], "types": {"a": "int64"}, "bad_rows": "skip"},
        {"envelope": "debezium"},
        {"envelope": "debezium", "format": "avro", "registry": "http://localhost:8081"},
        {"client": {"sasl.password": "file:/run/secret", "security.protocol": "sasl_ssl"}},
    ],
)
def test_keys_that_go_together(keys: dict[str, Any]) -> None:
    assert decoded(**keys).kafka == KAFKA["kafka"]


def test_times_and_numbers_become_text() -> None:
    start = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    spec = decoded(start=start, client={"fetch.error.backoff.ms": 100, "enable.x": True})
    assert spec.start == "2026-11-21T10:00:00+00:00"
    assert spec.client == {"fetch.error.backoff.ms": "100", "enable.x": "true"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kafka": None}, "inputs.trips.topic is only for messages of Kafka"),
        ({"kafka": None, "topic": None}, "inputs.trips.path is missing"),
        ({"kafka": "a:1,,b:2"}, "kafka must name the brokers"),
        ({"topic": None}, "topic is missing; write topic"),
        ({"topics": ["a"]}, "topic and inputs.trips.topics exclude each other"),
        ({"topic": ""}, "topic must not be empty"),
        ({"topic": None, "topic_pattern": "("}, "is not a regular expression"),
        ({"path": "x.json"}, "path does not apply to messages of Kafka"),
        ({"sample": 0.5}, "sample does not apply"),
        ({"version": 3}, "version does not apply"),
        ({"format": None}, "format is missing; messages have no suffix"),
        ({"format": "parquet"}, "messages of Kafka cannot be parquet"),
        ({"format": "text"}, "'text' is not"),
        ({"format": "avro"}, "avro messages need a schema"),
        ({"format": "avro", "schema": "a", "registry": "http://r"}, "exclude each other"),
        ({"format": "avro", "registry": "http://me:secret@r"}, "registry must say where the"),
        ({"format": "protobuf", "schema": "a"}, "message is missing: protobuf needs"),
        ({"format": "protobuf", "message": "a"}, "schema is missing: protobuf needs"),
        ({"registry": "http://r"}, "registry is only for the format avro"),
        ({"message": "a.B"}, "message is only for the format protobuf"),
        ({"schema": "union"}, "'union' is only for files"),
        ({"format": "raw", "schema": "a"}, "raw needs none"),
        ({"format": "raw", "types": {"a": "int64"}}, "types is for json and csv"),
        ({"schema": "a.avsc", "types": {"a": "int64"}}, "schema has the types; remove"),
        ({"envelope": "debezium", "format": "csv"}, "read from json and avro, not from csv"),
        ({"envelope": "other"}, "'other' is not 'none' or 'debezium'"),
        ({"start": "yesterday"}, "start must be 'earliest', 'latest', a time"),
        ({"start": {"x": 1}}, "offset of each partition"),
        ({"start": {"0": -1}}, "offset of each partition"),
        ({"start": {"0": 1}, "topic": None, "topics": ["a"]}, "are for one topic"),
        ({"client": {"group.id": "g"}}, "group.id cannot be set: .* no consumer group"),
        ({"client": {"auto.offset.reset": "latest"}}, "cannot be set: set inputs.trips.start"),
        ({"client": {"sasl.password": "hunter2"}}, "client.sasl.password must say where"),
        ({"client": {"ssl.key.pem": "hunter2"}}, "client.ssl.key.pem must say where"),
    ],
)
def test_keys_that_do_not(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(JobFileError, match=message) as caught:
        decoded(**keys)
    assert "hunter2" not in str(caught.value)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": "a.csv", "format": "raw"}, "'raw' is only for messages of Kafka"),
        ({"path": "a.csv", "schema": "a.avsc"}, "'a.avsc' is not 'strict' or 'union'"),
        ({"path": "a.csv", "metadata": True}, "metadata is only for messages of Kafka"),
        ({"path": "a.csv", "client": {"a": "b"}}, "client is only for messages of Kafka"),
    ],
)
def test_files_have_no_keys_of_kafka(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(JobFileError, match=message):
        decoded(kafka=None, topic=None, **{"format": None} | keys)
