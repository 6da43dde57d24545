"""A schema registry for tests, on loopback."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def schema_registry(schemas: Mapping[int, str]) -> Iterator[tuple[str, list[str]]]:
    """Serve the one request of Confluent's protocol that is used, as its own server is not there.

    It takes the user ``me`` with the password ``p@s/s``, and notes what it is asked for.
    """
    login = base64.b64encode(b"me:p@s/s").decode()
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            number = int(self.path.rpartition("/")[2])
            code = 200 if number in schemas else 404
            if self.headers["Authorization"] != f"Basic {login}":
                code = 401
            body = {"schema": schemas.get(number)} if code == 200 else {"error_code": code}
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://me:p%40s%2Fs@127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
