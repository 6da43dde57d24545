"""The HTTP server: who is answered, and what a client can take of it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from mrflight.page import http_server
from mrflight.page.access import HostNames, TokenAccess
from mrflight.page.http_server import Answer, HttpServer, ListenAt, Route
from mrflight.page.https import ServerCertificate
from mrflight.security.authority import issue, new_authority
from tests.support.commands.http import get, received, send
from tests.support.commands.threads import await_thread, run_threads
from tests.support.suite.waiting import hang_s

TOKEN = "a token of a test"

REQUEST = b"GET /secret HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n"


def endless(stop: threading.Event) -> Iterator[bytes]:
    while not stop.is_set():
        yield b"x" * 2**16


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def server(stop: threading.Event) -> Iterator[HttpServer]:
    routes = {
        "/": Route(lambda: Answer("text/html", b"<p>open"), is_public=True),
        "/secret": Route(lambda: Answer("text/plain", b"rows")),
        "/stream": Route(lambda: Answer("text/plain", parts=endless(stop))),
    }
    listen = ListenAt(TokenAccess(TOKEN), names=HostNames(frozenset({"big.example"})))
    with HttpServer(listen, routes) as running:
        yield running


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:8080", "[::1]:80", "big.example:443"],
)
def test_a_host_of_this_machine_is_answered(server: HttpServer, host: str) -> None:
    assert get(server.port, "/secret", TOKEN, headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "", "[::2]"],
)
def test_another_host_is_refused(server: HttpServer, host: str) -> None:
    for path in ("/", "/secret", "/nothing"):
        assert get(server.port, path, TOKEN, headers={"Host": host}).status == 403


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_a_request_names_one_host(server: HttpServer, head: bytes) -> None:
    assert send(server.port, head).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", "\xff"])
def test_what_is_not_public_needs_the_token(server: HttpServer, token: str | None) -> None:
    for path in ("/secret", "/stream", "/nothing"):
        answer = get(server.port, path, token)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert b"rows" not in answer.body


def test_the_token_goes_into_a_header_only(server: HttpServer) -> None:
    for path in (f"/secret?token={TOKEN}", f"/secret?{TOKEN}"):
        assert get(server.port, path.replace(" ", "%20")).status == 401
    cookie = {"Cookie": f"token={TOKEN}"}
    assert get(server.port, "/secret", headers=cookie).status == 401
    assert get(server.port, "/secret", TOKEN).body == b"rows"
    assert get(server.port, "/nothing", TOKEN).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "X"])
def test_only_get_is_answered(server: HttpServer, method: str) -> None:
    answer = get(server.port, "/secret", TOKEN, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


def test_answers_allow_no_other_site_anything(server: HttpServer) -> None:
    origin = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    for path in ("/", "/secret", "/nothing"):
        headers = get(server.port, path, TOKEN, headers=origin).headers
        assert not [name for name in headers if name.startswith("access-control-")]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: 1\r\n" % n for n in range(200)) + b"\r\n",
        b"\x00\xff\xfe /\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * 2**17 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_malformed_request_harms_nobody(server: HttpServer, head: bytes) -> None:
    answer = send(server.port, head)
    assert b"HTTP/1.1 200" not in answer
    assert b"Traceback" not in answer
    assert get(server.port, "/secret", TOKEN).status == 200


def test_a_request_is_answered_whose_bytes_come_one_by_one(server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), hang_s()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in REQUEST % (b"localhost", TOKEN.encode()):
            connection.send(bytes([byte]))
        assert received(connection).endswith(b"rows")


def test_a_slow_request_ends_at_its_deadline(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), hang_s()) as connection:
        with suppress(ConnectionError):  # the deadline may pass before
            connection.sendall(b"GET / HTTP/1.1\r\n")
        assert received(connection) == b""


def test_a_client_that_reads_nothing_is_cut_off(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SEND_TIMEOUT_S", 0.2)
    ended = threading.Event()
    served = server.serve_connection

    def serve(connection: socket.socket) -> None:
        served(connection)
        ended.set()

    monkeypatch.setattr(server, "serve_connection", serve)
    with socket.create_connection(("127.0.0.1", server.port), hang_s()) as connection:
        request = REQUEST.replace(b"/secret", b"/stream")
        connection.sendall(request % (b"localhost", TOKEN.encode()))
        assert ended.wait(hang_s())


def certificate(folder: Path) -> ServerCertificate:
    issued = issue(new_authority("test", 1), "server", ["127.0.0.1"], days=1)
    (folder / "own.pem").write_bytes(issued.certificate_pem)
    (folder / "own.key").write_bytes(issued.key_pem)
    return ServerCertificate(str(folder / "own.pem"), str(folder / "own.key"))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_idle_connections_are_bounded_and_make_room(
    server: HttpServer, scheme: str, tmp_path: Path
) -> None:
    """The oldest ends at once, and not when its request is late."""
    with ExitStack() as stack:
        if scheme == "https":
            listen = msgspec.structs.replace(server.listen, tls=certificate(tmp_path))
            server = stack.enter_context(HttpServer(listen, server.routes))
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), hang_s()))
            for _ in range(http_server.MAX_CONNECTIONS)
        ]
        for number in range(3):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), hang_s())
            )
            if scheme == "https":
                trusted = ssl._create_unverified_context()
                connection = stack.enter_context(trusted.wrap_socket(connection))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert received(connection).startswith(b"HTTP/1.1 200 ")
            if not number:
                assert received(held[0]) == b""
        assert len(server._connections) <= http_server.MAX_CONNECTIONS


def test_pages_that_stay_open_leave_room_for_health(
    server: HttpServer, stop: threading.Event
) -> None:
    request = REQUEST.replace(b"/secret", b"/stream") % (b"localhost", TOKEN.encode())
    with ExitStack() as stack:
        for _ in range(http_server.MAX_STREAMS):
            held = stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), hang_s())
            )
            held.sendall(request)
            assert held.recv(15).startswith(b"HTTP/1.1 200 ")
        assert send(server.port, request).startswith(b"HTTP/1.1 503 ")
        assert get(server.port, "/").status == 200
        stop.set()


def test_closing_ends_what_is_being_sent(server: HttpServer, stop: threading.Event) -> None:
    with socket.create_connection(("127.0.0.1", server.port), hang_s()) as connection:
        request = REQUEST.replace(b"/secret", b"/stream")
        connection.sendall(request % (b"localhost", TOKEN.encode()))
        assert connection.recv(100)
        stop.set()
        reading = threading.Thread(target=received, args=[connection])
        reading.start()
        server.close()
        await_thread(reading)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), hang_s())


def test_a_client_that_reads_nothing_does_not_hold_up_the_end(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "END_TIMEOUT_S", 0.1)
    monkeypatch.setattr(http_server, "SEND_TIMEOUT_S", 86_400.0)
    with socket.create_connection(("127.0.0.1", server.port), hang_s()) as connection:
        request = REQUEST.replace(b"/secret", b"/stream")
        connection.sendall(request % (b"localhost", TOKEN.encode()))
        assert connection.recv(100)
        run_threads([server.close])


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer(ListenAt(TokenAccess(TOKEN), port=server.port), {})
