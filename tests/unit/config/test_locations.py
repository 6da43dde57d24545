"""Tests of which texts are locations of servers."""

from __future__ import annotations

import pytest

import mrflight
from mrflight.config.locations import is_location
from mrflight.errors import JobError
from tests.support.suite.messages import refused


@pytest.mark.parametrize(
    "text",
    ["grpc+tcp://127.0.0.1:5005", "grpc://host:1", "grpc+tls://h:65535", "grpc+unix:///tmp/a.sock"],
)
def test_a_location_is_accepted(text: str) -> None:
    assert is_location(text)
    mrflight.connect(text).close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:5005",
        "http://h:1",
        "grpc+tcp://h",
        "grpc+tcp://\0:1",
        "grpc+tcp://\a:1",
        "grpc+tcp://h:0",
        "grpc+tcp://h:65536",
        "grpc+tcp://h:٣",
        "grpc+unix://a.sock",
        "grpc+unix:///tmp/\a.sock",
    ],
)
def test_a_text_that_is_not_a_location_is_refused(text: str) -> None:
    assert not is_location(text)
    with refused(JobError):
        mrflight.connect(text)
