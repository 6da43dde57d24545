"""An HTTP proxy before an S3 server that records each request, to count what a client sends.

    python -m tests.services.recorder PORT SERVER_PORT

It is a process of its own because some clients hold the interpreter's lock while they wait.

MinIO's own audit records cannot be counted: it drops a record, half of the time, if the client has
closed its connection by the time the handler returns. Go's ``select`` in ``Target.Send`` of
``internal/logger/target/http`` then chooses at random between its queue and the request's
cancelled context. Of 200 requests whose client closed the connection after the last byte 180 were
recorded, and all 200 of a client that kept it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tests.services.get import get
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import server_process
from tests.services.service_folder import service_folder
from tests.services.starts import answers, wait_for
from tests.support.suite.waiting import hang_s

_RECORDS = "/-/requests"
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Request(msgspec.Struct, frozen=True):
    """One request that was answered."""

    api: str
    """The operation's name in S3's API: PutObject, GetObject, ListObjectsV2, ..."""
    bucket: str
    key: str
    """Decoded; empty if the request is about the bucket."""
    query: dict[str, str]
    status: int
    received_bytes: int
    """The body of the request."""
    sent_bytes: int
    """The body of the response."""


class Recorder(msgspec.Struct, frozen=True):
    """A recorder that runs, at a port of loopback."""

    port: int

    def requests(self) -> list[Request]:
        """Return all requests so far, in the order of the responses.

        A request is recorded before its client gets the response.
        """
        status, body = get(self.port, _RECORDS)
        assert status == 200, body
        return msgspec.json.decode(body, type=list[Request])


@contextmanager
def recorder(server_port: int) -> Iterator[Recorder]:
    """Forward requests to a server on loopback and record them, inside."""
    root = str(Path(__file__).parents[2])
    with reserved_port() as port, service_folder("recorder") as folder:
        command = [sys.executable, "-m", __name__, str(port), str(server_port)]
        environment = {**os.environ, "PYTHONPATH": root}
        with server_process("recorder", command, folder, environment) as server:
            wait_for(lambda: answers(port, _RECORDS), [server])
            yield Recorder(port)


class Proxy(ThreadingHTTPServer):
    """The server of the recorder's process; it runs until it is killed."""

    daemon_threads = True

    def __init__(self, port: int, server_port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.forward_to = server_port
        self._lock = threading.Lock()
        self._requests: list[Request] = []

    def add(self, request: Request) -> None:
        with self._lock:
            self._requests.append(request)

    def encoded(self) -> bytes:
        with self._lock:
            return msgspec.json.encode(self._requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # clients keep their connections
    wbufsize = -1  # head and body in one segment, or the body waits for the client's ACK
    server: Proxy

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # every method
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == _RECORDS:
            self._answer(self.server.encoded())
        else:
            self._forward(body)

    def _forward(self, body: bytes) -> None:
        with closing(HTTPConnection(LOOPBACK, self.server.forward_to, timeout=hang_s())) as server:
            server.putrequest(self.command, self.path, True, True)
            for name, value in self.headers.items():  # with Host, which is signed
                if name.lower() not in {"connection", "expect"}:
                    server.putheader(name, value)
            server.endheaders(body)
            response = server.getresponse()
            answer = response.read()
        self.server.add(_request(self.command, self.path, self.headers, body, response, answer))
        self._answer(answer, response)

    def _answer(self, answer: bytes, response: HTTPResponse | None = None) -> None:
        length = str(len(answer))
        self.send_response_only(200 if response is None else response.status)
        if response is not None:
            for name, value in response.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            if self.command == "HEAD":
                length = response.getheader("Content-Length", length)
        self.send_header("Content-Length", length)
        try:
            self.end_headers()
            self.wfile.write(answer)
            self.wfile.flush()
        except ConnectionError:  # the client does not want the rest
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing for a request."""


def _request(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    response: HTTPResponse,
    answer: bytes,
) -> Request:
    url = urlsplit(target)
    bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    api = _api(method, key, query, headers)
    return Request(api, bucket, key, query, response.status, len(body), len(answer))


def _api(method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    if method == "GET" and not key:
        return "ListObjectsV2" if query.get("list-type") == "2" else "ListObjectsV1"
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "CopyObject"
    if method == "PUT" and "partNumber" in query:
        return "PutObjectPart"
    if method == "POST" and not key:
        return "DeleteMultipleObjects"
    if method == "POST":
        return "NewMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
    if method == "DELETE" and "uploadId" in query:
        return "AbortMultipartUpload"
    return method.title() + ("Object" if key else "Bucket")


if __name__ == "__main__":
    Proxy(int(sys.argv[1]), int(sys.argv[2])).serve_forever()
