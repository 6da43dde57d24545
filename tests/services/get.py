"""Ask a server on loopback by HTTP, whatever proxy the environment names."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection

from tests.services.reserved_port import LOOPBACK
from tests.support.suite.waiting import hang_s


def get(port: int, path: str, timeout_s: float | None = None) -> tuple[int, bytes]:
    """The status and the body; waits as long as for what hangs if it is not said how long."""
    timeout_s = hang_s() if timeout_s is None else timeout_s
    with closing(HTTPConnection(LOOPBACK, port, timeout=timeout_s)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
