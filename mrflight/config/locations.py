"""Checks locations of servers, as Flight writes them."""

from __future__ import annotations

import re

_LOCATION = re.compile(r"grpc(\+tcp|\+tls)?://[^/\s\0]+:\d+|grpc\+unix:///[^\s\0]+")


def is_location(text: str) -> bool:
    """Return whether the text has the form of a location."""
    return _LOCATION.fullmatch(text) is not None


def parse_location(text: str) -> str:
    """Return ``text``; ValueError with examples if it is not a location."""
    if not is_location(text):
        raise ValueError(
            f"{text[:512]!r} is not a location such as grpc+tcp://127.0.0.1:5005 or "
            "grpc+unix:///path"
        )
    return text
