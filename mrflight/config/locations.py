"""Checks locations of servers, as Flight writes them."""

from __future__ import annotations

import ipaddress
import re

_LOCATION = re.compile(
    r"grpc(\+tcp|\+tls)?://[^/\s\x00-\x1f]+:(?P<port>[0-9]{1,5})|grpc\+unix:///[^\s\x00-\x1f]+"
)
_MAX_PORT = 65535
_UNIX = "grpc+unix:///"
_HOST = re.compile(r"grpc(\+tcp|\+tls)?://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def is_location(text: str) -> bool:
    """Return whether the text has the form of a location."""
    match = _LOCATION.fullmatch(text)
    return match is not None and (match["port"] is None or 0 < int(match["port"]) <= _MAX_PORT)


def is_encrypted(location: str) -> bool:
    """Return whether what is sent to a location is encrypted."""
    return location.startswith("grpc+tls://")


def is_plain_tcp(location: str) -> bool:
    """Return whether what is sent to a location goes over a network in the clear."""
    return not is_encrypted(location) and not location.startswith("grpc+unix:")


def is_on_this_machine(location: str) -> bool:
    """Return whether a location is a unix socket or on loopback, which no other machine reaches."""
    match = _HOST.fullmatch(location)
    if match is None:
        return location.startswith(_UNIX)
    return is_loopback(match["host"].strip("[]"))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback, by its address or as ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_location(text: str) -> str:
    """Return ``text``; ValueError with examples if it is not a location."""
    if not is_location(text):
        raise ValueError(
            f"{text[:512]!r} is not a location such as grpc+tls://host:5005, "
            "grpc+tcp://127.0.0.1:5005 or grpc+unix:///path"
        )
    return text
