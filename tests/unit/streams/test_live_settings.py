"""A stream can be live if its rows are what its table gets, and readers can reach them."""

from __future__ import annotations

from typing import Any

import pytest

from mrflight.config.job_file import decode_job
from mrflight.errors import JobFileError
from mrflight.streams.stream_settings import StreamSettings
from tests.support.suite.messages import refused

INPUT = {"kafka": "localhost:1", "topic": "trips", "format": "json"}


def document(**more: dict[str, Any]) -> dict[str, Any]:
    """Return a job file of a live stream, with more keys of its sections."""
    sections: dict[str, dict[str, Any]] = {
        "job": {"name": "trips"},
        "inputs": {"trips": INPUT},
        "stream": {"live": True},
        "output": {"table": "out", "mode": "append"},
    }
    return sections | {name: sections.get(name, {}) | keys for name, keys in more.items()}


LOG = {"log": "trips"}
MAPPED = LOG | {"map": "trips:clean"}
STANDING = {"metadata": "grpc+tcp://127.0.0.1:5005"}


@pytest.mark.parametrize("is_live", [True, False])
def test_a_stream_is_live_if_it_says_so(is_live: bool) -> None:
    spec = decode_job(document(stream={"live": is_live}))
    assert StreamSettings.of(spec).is_live is spec.is_live is is_live


def test_changes_have_an_order_without_a_setting() -> None:
    output = {"mode": "merge", "keys": ["id"]}
    more = document(inputs={"trips": INPUT | {"envelope": "debezium"}}, output=output)
    assert StreamSettings.of(decode_job(more)).is_live


@pytest.mark.parametrize(
    "more",
    [
        {"output": {"mode": "merge", "keys": ["id"]}},
        {"output": {"format": "iceberg", "catalog": "sqlite:///c.db"}},
        {"reduce": {"group_by": ["id"], "aggregate": {"n": "count(*)"}}},
        {"inputs": {"zones": {"path": "zones.csv", "key": ["id"]}}},
        {"cluster": {"executor": "ray"}},
        {"cluster": {"executor": "ray"}, "inputs": {"trips": MAPPED}},
        {"cluster": {"data_servers": 0}},
    ],
)
def test_others_are_refused(more: dict[str, dict[str, Any]]) -> None:
    with refused(JobFileError, "stream.live"):
        StreamSettings.of(decode_job(document(**more)))
