"""Ask a server on loopback by HTTP, whatever proxy the environment names."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection

from tests.services.reserved_port import LOOPBACK

_TIMEOUT_S = 10.0


def get(port: int, path: str) -> tuple[int, bytes]:
    """The status and the body."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
