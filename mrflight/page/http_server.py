"""A small HTTP server on the standard library: GET only, bounded connections, a deadline each.

It knows no pages: what it answers comes from `Routes`.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec

from mrflight.page.access import Authorize, HostNames
from mrflight.page.https import Encryption
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""Each costs a thread. A browser takes one for a page, and a Prometheus one at a time. If there are
so many, the one that has waited for its request for longest makes room for another."""
MAX_STREAMS = 32
"""Answers that last, of browsers; the other connections are left to those who ask for health."""
MAX_HEAD_BYTES = 16 * 2**10
HEAD_TIMEOUT_S = 5.0
"""How long all of a request's head may take, however slowly its bytes come."""
SEND_TIMEOUT_S = 10.0
"""How long a client may leave what was sent to it unread."""
END_TIMEOUT_S = 2.0
"""How long answers that are being sent may take once the server is closed."""
_BACKLOG = 128
_PIECE_BYTES = 64 * 2**10

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer. There are no CORS headers, so that no other site can read any."""


class Answer(msgspec.Struct, frozen=True):
    """What a route answers: a body, or parts of one as they come until the server is closed."""

    media_type: str
    body: bytes = b""
    parts: Iterator[bytes] | None = None
    status: HTTPStatus = HTTPStatus.OK


class Route(msgspec.Struct, frozen=True):
    """What is at a path."""

    answer: Callable[[], Answer]
    is_public: bool = False
    """Whether it needs no authorization, because it tells nothing."""


Routes = Mapping[str, Route]


class ListenAt(msgspec.Struct, frozen=True):
    """Where a server listens, and for whom."""

    authorize: Authorize
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    names: HostNames = HostNames()
    tls: Encryption | None = None


class HttpServer(Closeable):
    """Answers requests in threads, from when it is made until it is closed.

    Raises OSError if it cannot listen.
    """

    def __init__(self, listen: ListenAt, routes: Routes) -> None:
        self.listen = listen
        self.routes = routes
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self._socket = socket.create_server(
            (listen.host, listen.port), family=family, backlog=_BACKLOG
        )
        self.port: int = self._socket.getsockname()[1]
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._closed = False
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)
        self._connections: dict[socket.socket, socket.socket] = {}
        """A second handle of each connection, as TLS takes the first one over."""
        self._waiting: dict[socket.socket, None] = {}
        """The connections whose request has not come yet, the oldest first."""
        self._changing = threading.Lock()  # guards `_closed` and the connections
        self._thread = threading.Thread(target=self._accept, name="http", daemon=True)
        self._thread.start()

    @property
    def location(self) -> str:
        """The URL of the server, without a path."""
        scheme = "http" if self.listen.tls is None else "https"
        host = f"[{self.listen.host}]" if ":" in self.listen.host else self.listen.host
        return f"{scheme}://{host}:{self.port}"

    def close(self) -> None:
        """Accept nothing more, let the parts of answers end, and close all connections."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which ends `accept`
        self._socket.close()
        self._thread.join()
        deadline = time.monotonic() + END_TIMEOUT_S
        for _ in range(MAX_CONNECTIONS):  # the thread of each connection gives back its own
            if not self._free.acquire(timeout=max(0.0, deadline - time.monotonic())):
                break
        with self._changing:
            for handle in self._connections.values():
                _end(handle)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                handle = connection.dup()
            except OSError as error:
                if self._closed:
                    return
                log.warning("a connection to the page was not accepted: %s", error)
                time.sleep(0.1)  # too many open files: another one may be closed
                continue
            if not self._free.acquire(blocking=False) and not self._make_room():
                handle.close()
                connection.close()
                continue
            with self._changing:
                self._connections[connection] = handle
                self._waiting[connection] = None
            thread = threading.Thread(
                target=self.serve_connection, args=(connection,), name="http-request", daemon=True
            )
            thread.start()

    def _make_room(self) -> bool:
        """End the oldest connection without a request; return whether another may be answered."""
        with self._changing:
            if (oldest := next(iter(self._waiting), None)) is None:
                return False
            del self._waiting[oldest]
            _end(self._connections[oldest])
        return self._free.acquire(timeout=HEAD_TIMEOUT_S)

    def serve_connection(self, connection: socket.socket) -> None:
        """Answer the one request of a connection."""
        try:
            with suppress(OSError), self._secured(connection) as stream:
                head = read_head(stream, time.monotonic() + HEAD_TIMEOUT_S)
                with self._changing:
                    self._waiting.pop(connection, None)
                stream.settimeout(SEND_TIMEOUT_S)
                if head:
                    _Request(self, stream, head)
        finally:
            with self._changing:
                self._waiting.pop(connection, None)
                self._connections.pop(connection).close()
            connection.close()
            self._free.release()

    @contextmanager
    def streaming(self) -> Iterator[bool]:
        """Yield whether one more answer may last until the context ends."""
        may_last = self._streams.acquire(blocking=False)
        try:
            yield may_last
        finally:
            if may_last:
                self._streams.release()

    def _secured(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(HEAD_TIMEOUT_S)
        if self.listen.tls is None:
            return connection
        return self.listen.tls.wrap_socket(connection, server_side=True)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may have ended it
        connection.shutdown(socket.SHUT_RDWR)


def read_head(stream: socket.socket, deadline: float) -> bytes:
    """Return a request up to the empty line; nothing if it is too long, too slow, or cut off."""
    head = b""
    while b"\r\n\r\n" not in head:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(head) > MAX_HEAD_BYTES:
            return b""
        stream.settimeout(left_s)
        received = stream.recv(_PIECE_BYTES)
        if not received:
            return b""
        head += received
    return head


class _Request(BaseHTTPRequestHandler):
    """Parses a head that was received, and answers it."""

    protocol_version = "HTTP/1.1"

    def __init__(self, server: HttpServer, stream: socket.socket, head: bytes) -> None:
        # Not the base's: that reads from the socket, line by line, for as long as a client likes.
        self._http = server
        self._stream = stream
        self.client_address = ("", 0)
        self.rfile = io.BufferedReader(io.BytesIO(head))
        self.wfile = _Sender(stream)
        self.close_connection = True
        self.handle_one_request()

    def do_GET(self) -> None:
        self._respond()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other method
            return self._refuse_method
        raise AttributeError(name)

    def version_string(self) -> str:
        return "mrflight"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a request's line is what a client sends."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request, in one line of text that has nothing of the request."""
        status = HTTPStatus(code)
        self._send(Answer("text/plain", f"{status.value} {status.phrase}\n".encode(), None, status))

    def _refuse_method(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    def _respond(self) -> None:
        listen = self._http.listen
        hosts = self.headers.get_all("host") or []
        local_address = self._stream.getsockname()[0]
        if len(hosts) != 1 or not listen.names.allow(hosts[0], local_address):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        route = self._http.routes.get(self.path.partition("?")[0])
        headers = {name.lower(): value for name, value in self.headers.items()}
        if (route is None or not route.is_public) and not listen.authorize(headers):
            self.send_error(HTTPStatus.UNAUTHORIZED)
        elif route is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._answer(route.answer())

    def _answer(self, answer: Answer) -> None:
        if answer.parts is None:
            self._send(answer)
            return
        with self._http.streaming() as may_last:
            if may_last:
                self._send(answer)
            else:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.media_type)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        if answer.parts is None:
            self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)
        for part in answer.parts or ():
            self.wfile.write(part)


class _Sender(io.BufferedIOBase):
    """Sends to a socket in pieces, each of which has the timeout of the socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        for start in range(0, len(data), _PIECE_BYTES):
            self._stream.sendall(data[start : start + _PIECE_BYTES])
        return len(data)
