"""Locations of servers, as Flight has them: where a client connects."""

from __future__ import annotations

import re

_LOCATION = re.compile(r"grpc(\+tcp|\+tls)?://[^/\s\0]+:\d+|grpc\+unix:///[^\s\0]+")


def is_location(text: str) -> bool:
    """Whether a client can connect there, as far as the text tells."""
    return _LOCATION.fullmatch(text) is not None


def parse_location(text: str) -> str:
    """``text``; ValueError with what one looks like where it is none."""
    if not is_location(text):
        raise ValueError(
            f"{text[:512]!r} is not a location such as grpc+tcp://127.0.0.1:5005 or "
            "grpc+unix:///path"
        )
    return text
