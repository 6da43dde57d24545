"""Requests to an HTTP server of mrflight, as bytes and as a client makes them."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from typing import NamedTuple

from tests.support.suite.waiting import hang_s


class Answered(NamedTuple):
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def get(
    port: int,
    path: str,
    token: str | None = None,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """Ask a server on loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=hang_s())
    sent = dict(headers or {})
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, headers=sent)
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, named, answer.read())
    finally:
        connection.close()


def send(port: int, request: bytes) -> bytes:
    """Send bytes, and return all that comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), hang_s()) as connection:
        connection.sendall(request)
        return received(connection)


def received(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes the connection, or cuts it."""
    parts = []
    try:
        while part := connection.recv(2**16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)
