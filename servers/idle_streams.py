"""Ends the connections of clients that leave streams open and say nothing more.

Flight gives a handler no way to end a call that waits for its client. A stream that stands still
for too long is therefore ended by shutting down its connection, if no call has come over that
either. Our own clients call every five seconds as long as they live, so a slow map or reduce is
left alone.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOKS = 4
"""How often it is looked within the timeout."""
_FILES = Path("/proc/self/fd")


class IdleStream:
    """A stream, and since when it waits for its client; None while the server works for it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.waits_since: float | None = None

    def received(self, messages: Iterator[T]) -> Iterator[T]:
        """Yield what the client sends."""
        while True:
            self.waits_since = time.monotonic()
            try:
                message = next(messages)
            except StopIteration:
                return
            finally:
                self.waits_since = None
            yield message

    def sent(self, items: Iterator[T]) -> Iterator[T]:
        """Yield what is sent; Flight asks for the next item when the client has room for it."""
        for item in items:
            self.waits_since = time.monotonic()
            yield item
            self.waits_since = None


@dataclass(frozen=True)
class StreamRules:
    """What streams of one server may do."""

    idle: IdleStreams
    takes_compressed: bool = False
    """Whether plain clients may send compressed batches."""


class IdleStreams(Closeable):
    """Looks at the streams of one server, in a thread."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._streams: set[IdleStream] = set()
        self._heard: dict[str, float] = {}
        self._changing = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, name="idle-streams", daemon=True)
        self._thread.start()

    def heard(self, peer: str) -> None:
        """Note that a call has come over the connection from ``peer``."""
        self._heard[peer] = time.monotonic()

    def begin(self, peer: str) -> IdleStream:
        """Watch a stream from ``peer``, as Flight's context writes it, until it is removed."""
        stream = IdleStream(peer)
        with self._changing:
            self._streams.add(stream)
        return stream

    @contextmanager
    def watched(self, peer: str) -> Iterator[IdleStream]:
        """Watch a stream until the context ends."""
        stream = self.begin(peer)
        try:
            yield stream
        finally:
            self.remove(stream)

    def sent(self, peer: str, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of an answer to ``peer``, which may not leave it standing."""
        with self.watched(peer) as stream:
            yield from stream.sent(items)

    def remove(self, stream: IdleStream) -> None:
        """Stop watching a stream, which has ended."""
        with self._changing:
            self._streams.discard(stream)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ending.wait(self._timeout_s / _LOOKS):
            try:
                self._end_idle(time.monotonic() - self._timeout_s)
            except Exception:  # otherwise the thread would end silently
                log.exception("looking for idle streams failed; it is tried again")

    def _end_idle(self, since: float) -> None:
        with self._changing:
            waiting = [each for each in self._streams if each.waits_since is not None]
            connected = {each.peer for each in self._streams}
        idle = {each.peer for each in waiting if (each.waits_since or 0.0) < since}
        for peer in idle:
            if self._heard.get(peer, 0.0) < since and end_connection(peer):
                log.warning(
                    "%s has a stream that has stood still for %g s, and has made no call; its "
                    "connection is ended",
                    peer,
                    self._timeout_s,
                )
        for peer, at in list(self._heard.items()):
            if at < since and peer not in connected:
                self._heard.pop(peer, None)


def end_connection(peer: str) -> bool:
    """Shut down the connection of a peer, as Flight writes it; return whether there was one."""
    wanted = _address(peer)
    if wanted is None or not _FILES.exists():
        return False
    for name in os.listdir(_FILES):
        with suppress(OSError, ValueError):
            if not os.readlink(_FILES / name).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                host, port, *_ = connection.getpeername()
                if (_plain(ipaddress.ip_address(host)), port) == wanted:
                    connection.shutdown(socket.SHUT_RDWR)
                    return True
    return False


def _address(peer: str) -> tuple[str, int] | None:
    """Return the address and port in ``ipv4:127.0.0.1:5005`` or ``ipv6:%5B::1%5D:5005``."""
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return _plain(ipaddress.ip_address(host.strip("[]"))), int(port)


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
