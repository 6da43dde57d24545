"""The settings of a stream: values with units, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from mrflight.config.job_file import decode_job
from mrflight.errors import JobFileError
from mrflight.streams.stream_settings import StreamSettings, is_stream, stream_input
from tests.support.streams.scripted_stream import Sections, document


def settings(**job: Any) -> StreamSettings:
    return StreamSettings.of(decode_job(document(job)))


def test_defaults() -> None:
    assert settings() == StreamSettings(
        "events", "events", 1.0, 1_000_000, 128 << 20, False, "stop", None, 0.01, False, 30.0, True
    )


@pytest.mark.parametrize(
    ("key", "value", "name", "wanted"),
    [
        ("name", "a.b_c-1", "name", "a.b_c-1"),
        ("commit", "10 ms", "commit_s", 0.01),
        ("commit", "2 min", "commit_s", 120.0),
        ("max_rows", 1, "max_rows", 1),
        ("max_bytes", "1 MiB", "max_bytes", 1 << 20),
        ("max_bytes", "0 B", "max_bytes", 1),
        ("mode", "available", "is_bounded", True),
        ("max_bad", "0%", "max_bad", 0.0),
        ("max_bad", "12.5 %", "max_bad", 0.125),
        ("max_bad", "100 %", "max_bad", 1.0),
        ("on_lost_offsets", "earliest", "takes_earliest", True),
        ("on_bad_row", "skip", "on_bad_row", "skip"),
        ("stop_within", "5 s", "stop_within_s", 5.0),
        ("upkeep", "off", "has_upkeep", False),
    ],
)
def test_values(key: str, value: object, name: str, wanted: object) -> None:
    assert getattr(settings(stream={key: value}), name) == wanted


def test_until_caught_up_bounds_a_stream() -> None:
    spec = decode_job(document({"stream": {"mode": "continuous"}}))
    assert not StreamSettings.of(spec).is_bounded
    assert StreamSettings.of(spec, until_caught_up=True).is_bounded


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({"stream": {"name": "a/b"}}, "stream.name"),
        ({"stream": {"name": "x" * 101}}, "stream.name"),
        ({"job": {"name": "two words"}}, "stream.name"),
        ({"stream": {"commit": "9 ms"}}, "stream.commit"),
        ({"stream": {"commit": "soon"}}, "stream.commit"),
        ({"stream": {"max_rows": 0}}, "stream.max_rows"),
        ({"stream": {"max_bytes": "many"}}, "stream.max_bytes"),
        ({"stream": {"max_bad": "101 %"}}, "stream.max_bad"),
        ({"stream": {"max_bad": "0.1"}}, "stream.max_bad"),
        ({"stream": {"on_bad_row": "dead_letter"}}, "stream.dead_letter is missing"),
        ({"stream": {"dead_letter": "out/x"}}, "stream.dead_letter is for"),
        ({"output": {"mode": "overwrite"}}, "output.mode"),
        ({"output": {"format": "parquet"}}, "output.format"),
        ({"job": {"name": "events", "run_id": "1"}}, "job.run_id"),
    ],
)
def test_what_a_stream_cannot_be(job: Sections, key: str) -> None:
    with pytest.raises(JobFileError) as caught:
        StreamSettings.of(decode_job(document(job)))
    assert str(caught.value).startswith(key)


def inputs(**sections: dict[str, Any]) -> dict[str, Any]:
    return {**document({}), "inputs": sections}


TOPIC = {"kafka": "broker:1", "topic": "t", "format": "json"}
FILES = {"path": "zones.csv"}


def test_a_stream_is_one_input_beside_tables() -> None:
    spec = decode_job(inputs(zones=FILES, trips=TOPIC))
    assert stream_input(spec) == "trips"
    assert [is_stream(each) for each in spec.inputs.values()] == [False, True]


@pytest.mark.parametrize(
    ("sections", "key"),
    [({"zones": FILES}, "inputs: "), ({"a": TOPIC, "b": TOPIC}, "inputs.b: ")],
)
def test_none_and_two_streams_are_refused(sections: dict[str, Any], key: str) -> None:
    with pytest.raises(JobFileError, match=r"a stream (needs|has)") as caught:
        stream_input(decode_job(inputs(**sections)))
    assert str(caught.value).startswith(key)
