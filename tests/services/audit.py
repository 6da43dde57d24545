"""MinIO's audit records: one for each request, posted to a webhook in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from tests.services.reserved_port import LOOPBACK


@dataclass(frozen=True)
class Request:
    """One that a client made, as the server saw it."""

    api: str  # of S3: PutObject, GetObject, ListObjectsV2, ...
    bucket: str
    key: str
    query: dict[str, str]
    status: int
    received_bytes: int  # of the body; -1 where the client did not say
    sent_bytes: int


class _Api(msgspec.Struct, rename="camel"):
    name: str = ""
    bucket: str = ""
    object: str = ""
    status_code: int = 0
    rx: int = -1
    tx: int = 0


class _Record(msgspec.Struct, rename="camel"):
    api: _Api
    trigger: str = ""
    request_query: dict[str, str] = {}

    def request(self) -> Request:
        api = self.api
        return Request(
            api.name, api.bucket, api.object, self.request_query, api.status_code, api.rx, api.tx
        )


class Audit:
    """The requests in the order in which their records came."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://{LOOPBACK}:{port}/"
        self._requests: list[Request] = []
        self._grown = threading.Condition()

    def add(self, body: bytes) -> None:
        records = [msgspec.json.decode(line, type=_Record) for line in body.splitlines() if line]
        with self._grown:
            # Others are of the server's own doing.
            self._requests += [each.request() for each in records if each.trigger == "incoming"]
            self._grown.notify_all()

    def up_to(self, key: str, timeout_s: float) -> list[Request]:
        """All before the first of a key, for which it waits."""
        with self._grown:
            if not self._grown.wait_for(lambda: self._place(key) is not None, timeout_s):
                raise TimeoutError(f"no audit record of {key} came within {timeout_s:g} s")
            return self._requests[: self._place(key)]

    def _place(self, key: str) -> int | None:
        keys = (place for place, request in enumerate(self._requests) if request.key == key)
        return next(keys, None)


@contextmanager
def audit() -> Iterator[Audit]:
    """It receives records inside."""

    class Webhook(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # one connection for all of them

        def do_POST(self) -> None:
            received.add(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody wants to know."""

    with ThreadingHTTPServer((LOOPBACK, 0), Webhook) as server:
        received = Audit(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=[0.05], name="audit")
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
