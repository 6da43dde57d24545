"""A proxy before a name node, on port 8020, the only one that HopsFS's client uses, and with TLS.

Each has an address of its own on loopback, so that tests at the same time are in nobody's way. It
can hold back a request, by the names that are in it: the name node's protocol is not compressed.
"""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.suite.waiting import await_that, hang_s

HOPS_PORT = 8020
_TRIES = 20


@dataclass
class HeldRequest:
    """A request that has all of these words in it; there is one at most."""

    words: tuple[bytes, ...]
    reached: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Until somebody has sent it. Raises TooSlow."""
        await_that(self.reached.is_set, f"a request for {self.words}")


@dataclass
class NameNodeProxy:
    """One that listens."""

    host: str
    port: int
    """The port of the name node behind the proxy."""
    tls: ssl.SSLContext | None = None
    users: list[str] = field(default_factory=list)
    """The common names of the certificates that clients have shown."""
    failures: list[str] = field(default_factory=list)
    """The handshakes that failed."""
    connections: int = 0
    held: HeldRequest | None = None

    @property
    def url(self) -> str:
        return f"hopsfs://{self.host}"

    @contextmanager
    def holding(self, *words: str) -> Iterator[HeldRequest]:
        """Hold back the first request with these words, until it is let go or this ends."""
        self.held = held = HeldRequest(tuple(word.encode() for word in words))
        try:
            yield held
        finally:
            held.let_go.set()

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = listener.accept()
                self.connections += 1
                threading.Thread(target=self._connect, args=[client], daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self.tls is not None:
            try:
                client = self.tls.wrap_socket(client, server_side=True)
            except OSError as error:
                self.failures.append(str(error))
                client.close()
                return
            self.users.append(_common_name(client))
        node = socket.create_connection(("127.0.0.1", self.port))
        threading.Thread(target=self._pump, args=[node, client], daemon=True).start()
        self._pump(client, node, looks=True)

    def _pump(self, source: socket.socket, sink: socket.socket, *, looks: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                held = self.held
                if looks and held is not None and all(word in data for word in held.words):
                    self.held = None
                    held.reached.set()
                    held.let_go.wait(hang_s())
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _common_name(client: socket.socket) -> str:
    assert isinstance(client, ssl.SSLSocket)
    names = dict(pair for parts in (client.getpeercert() or {})["subject"] for pair in parts)
    return str(names["commonName"])


@contextmanager
def name_node_proxy(port: int, tls: ssl.SSLContext | None = None) -> Iterator[NameNodeProxy]:
    """Before the name node at this port."""
    with _listener() as listener:
        proxy = NameNodeProxy(listener.getsockname()[0], port, tls)
        threading.Thread(target=proxy.serve, args=[listener], daemon=True).start()
        try:
            yield proxy
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _listener() -> socket.socket:
    for _ in range(_TRIES):
        listener = socket.socket()
        host = ".".join(str(part) for part in (127, *(random.randrange(1, 255) for _ in "abc")))
        try:
            listener.bind((host, HOPS_PORT))
        except OSError:
            listener.close()
            continue
        listener.listen()
        return listener
    raise OSError(f"no address of loopback has port {HOPS_PORT} free")
