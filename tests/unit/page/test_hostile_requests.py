"""Whatever bytes come to the HTTP server, it answers the next request, and tells nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrflight.page.access import TokenAccess
from mrflight.page.http_server import Answer, HttpServer, ListenAt, Route
from tests.support.commands.http import get, send

TOKEN = "a token of a test"
SECRET = b"the rows"

LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"GET /secret HTTP/1.1",
                b"GET http://localhost/secret HTTP/1.1",
                b"GET //secret HTTP/1.1",
                b"POST /secret HTTP/1.1",
                b"Host: localhost",
                b"Host: evil.example",
                b"Authorization: Bearer",
                b"Authorization: Bearer wrong",
                b"Authorization: Basic " + TOKEN.encode(),
                b"Transfer-Encoding: chunked",
                b"Content-Length: -1",
                b"Expect: 100-continue",
                b" folded",
                b":",
                b"",
            ]
        ),
        st.binary(max_size=40),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    routes = {"/secret": Route(lambda: Answer("text/plain", SECRET))}
    with HttpServer(ListenAt(TokenAccess(TOKEN)), routes) as running:
        yield running


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, ending=st.sampled_from([b"\r\n", b"\n", b"\r"]))
def test_hostile_requests_tell_nothing_and_harm_nobody(
    server: HttpServer, lines: list[bytes], ending: bytes
) -> None:
    answer = send(server.port, ending.join(lines) + b"\r\n\r\n")
    assert SECRET not in answer
    assert b"Traceback" not in answer
    assert get(server.port, "/secret", TOKEN).body == SECRET
