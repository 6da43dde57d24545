"""Tests of which keys of an input from Kafka go together."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from mrflight.config.input_spec import InputSpec
from mrflight.config.job_file import decode_job
from mrflight.errors import JobFileError
from tests.support.suite.messages import refused

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
    ("keys", "key"),
    [
        ({"kafka": None}, "inputs.trips.topic"),
        ({"kafka": None, "topic": None}, "inputs.trips.path"),
        ({"kafka": "a:1,,b:2"}, "inputs.trips.kafka"),
        ({"topic": None}, "inputs.trips.topic"),
        ({"topics": ["a"]}, "inputs.trips.topic"),
        ({"topic": ""}, "inputs.trips.topic"),
        ({"topic": None, "topic_pattern": "("}, "inputs.trips.topic_pattern"),
        ({"path": "x.json"}, "inputs.trips.path"),
        ({"sample": 0.5}, "inputs.trips.sample"),
        ({"version": 3}, "inputs.trips.version"),
        ({"format": None}, "inputs.trips.format"),
        ({"format": "parquet"}, "inputs.trips.format"),
        ({"format": "text"}, "inputs.trips.format"),
        ({"format": "avro"}, "inputs.trips.schema"),
        ({"format": "avro", "schema": "a", "registry": "http://r"}, "inputs.trips.schema"),
        ({"format": "avro", "registry": "http://me:secret@r"}, "inputs.trips.registry"),
        ({"format": "protobuf", "schema": "a"}, "inputs.trips.message"),
        ({"format": "protobuf", "message": "a"}, "inputs.trips.schema"),
        ({"registry": "http://r"}, "inputs.trips.registry"),
        ({"message": "a.B"}, "inputs.trips.message"),
        ({"schema": "union"}, "inputs.trips.schema"),
        ({"format": "raw", "schema": "a"}, "inputs.trips.schema"),
        ({"format": "raw", "types": {"a": "int64"}}, "inputs.trips.types"),
        ({"schema": "a.avsc", "types": {"a": "int64"}}, "inputs.trips.schema"),
        ({"envelope": "debezium", "format": "csv"}, "inputs.trips.envelope"),
        ({"envelope": "other"}, "inputs.trips.envelope"),
        ({"start": "yesterday"}, "inputs.trips.start"),
        ({"start": {"x": 1}}, "inputs.trips.start"),
        ({"start": {"0": -1}}, "inputs.trips.start"),
        ({"start": {"0": 1}, "topic": None, "topics": ["a"]}, "inputs.trips.start"),
        ({"client": {"group.id": "g"}}, "inputs.trips.client.group.id"),
        ({"client": {"auto.offset.reset": "latest"}}, "inputs.trips.client.auto.offset.reset"),
        ({"client": {"sasl.password": "hunter2"}}, "inputs.trips.client.sasl.password"),
        ({"client": {"ssl.key.pem": "hunter2"}}, "inputs.trips.client.ssl.key.pem"),
    ],
)
def test_keys_that_do_not(keys: dict[str, Any], key: str) -> None:
    with refused(JobFileError, key) as caught:
        decoded(**keys)
    assert "hunter2" not in str(caught.value)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"path": "a.csv", "format": "raw"}, "inputs.trips.format"),
        ({"path": "a.csv", "schema": "a.avsc"}, "inputs.trips.schema"),
        ({"path": "a.csv", "metadata": True}, "inputs.trips.metadata"),
        ({"path": "a.csv", "client": {"a": "b"}}, "inputs.trips.client"),
    ],
)
def test_files_have_no_keys_of_kafka(keys: dict[str, Any], key: str) -> None:
    with refused(JobFileError, key):
        decoded(kafka=None, topic=None, **{"format": None} | keys)
