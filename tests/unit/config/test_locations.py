"""Tests of which texts are locations of servers."""

from __future__ import annotations

import pytest

import mrflight
from mrflight.config.locations import is_location, is_on_this_machine
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
    ("text", "is_here"),
    [
        ("grpc+unix:///tmp/a.sock", True),
        ("grpc+tcp://127.0.0.1:5005", True),
        ("grpc://127.1.2.3:5005", True),
        ("grpc+tls://localhost:5005", True),
        ("grpc+tcp://[::1]:5005", True),
        ("grpc+tcp://10.0.0.1:5005", False),
        ("grpc+tcp://0.0.0.0:5005", False),
        ("grpc+tcp://localhost.example.com:5005", False),
        ("grpc+tcp://127.0.0.1:1@host:5005", False),
        ("grpc+tcp://127.0.0.1:1,host:5005", False),
        ("grpc+unix://host/a.sock", False),
        ("127.0.0.1:5005", False),
        ("", False),
    ],
)
def test_a_location_is_on_this_machine_or_not(text: str, is_here: bool) -> None:
    assert is_on_this_machine(text) == is_here


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
