"""A flaky and slow transport: a proxy of bytes in front of a real server.

It listens where clients are sent and forwards to where the server listens, and
does harm at run time: late, slow, stalled, cut, refused, corrupt. All is done
by one thread, to which every order is passed, so that an order is carried out
when the call returns, between two chunks of bytes and never within one.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mrflight.system.closeable import Closeable
from tests.support.faults.proxied_connection import (
    TCP,
    UNIX,
    Direction,
    Link,
    Pipe,
    connect,
    listen,
    location_of,
)
from tests.support.faults.proxied_connection import close as close_socket
from tests.support.suite.waiting import hang_s

T = TypeVar("T")

_CHUNK_BYTES = 1 << 16
_SLOW_STEP_S = 0.02
"""A throttled connection sends as much as is due in so long, at least a byte."""


class TransportCounts(msgspec.Struct, frozen=True):
    """Counts what a transport has done. A fault that hit nothing is not counted."""

    connections: int = 0
    """The connections that were accepted and forwarded."""
    forwarded_bytes: int = 0
    delayed_bytes: int = 0
    throttled_bytes: int = 0
    stalled_bytes: int = 0
    """The bytes that arrived while nothing was forwarded."""
    cut_connections: int = 0
    refused_connections: int = 0
    unreachable: int = 0
    """Connections that were closed because the server took none."""
    flipped_bits: int = 0


class _Weather(msgspec.Struct, frozen=True):
    """The faults that a transport has at present."""

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    stalled: bool = False
    refusing: bool = False


class FlakyTransport(Closeable):
    """A proxy in front of the server at ``target``, in this process; healthy to begin with.

    ``target`` and ``at`` are locations, ``grpc+tcp://HOST:PORT`` (to listen on port 0 takes a
    free one) or ``grpc+unix://PATH``. The server need not run yet. OSError where it cannot listen.
    Safe for many threads. `close` ends its thread and every connection.
    """

    def __init__(self, target: str, at: str = f"{TCP}127.0.0.1:0") -> None:
        self._target = target
        self._weather = _Weather()
        self._counts = TransportCounts()
        self._links: set[Link] = set()
        self._flips: dict[Direction, int] = {}
        self._needles: dict[Direction, bytes] = {}
        self._orders: deque[Callable[[], None]] = deque()
        self._closed = False
        self._over = False
        self._ordering = threading.Lock()
        self._listener = listen(at)
        self.location = location_of(self._listener, at)
        """The location to which clients connect."""
        self._woken, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for end in (self._listener, self._woken):
            end.setblocking(False)
            self._selector.register(end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="flaky-transport", daemon=True)
        self._thread.start()

    def delay(self, seconds: float) -> None:
        """Forward what comes in from now on so much later, in its order."""
        self._change(delay_s=seconds)

    def throttle(self, bytes_per_s: float) -> None:
        """Forward no more than this in each direction of each connection."""
        self._change(bytes_per_s=bytes_per_s)

    def stall(self) -> None:
        """Take connections and some bytes, and forward nothing, until `heal`."""
        self._change(stalled=True)

    def refuse(self) -> None:
        """Reset connections as soon as they are made; those that are there stay."""
        self._change(refusing=True)

    def cut(self) -> int:
        """Close every connection now, by a reset over tcp; how many there were."""
        return self._order(self._cut)

    def cut_off(self) -> int:
        """`refuse` and `cut` at once: a client cannot come back in between."""

        def both() -> int:
            self._weather = replace(self._weather, refusing=True)
            return self._cut()

        return self._order(both)

    def flip_bit(self, byte: int, direction: Direction) -> None:
        """Flip a bit of the ``byte``-th byte, from 0, that is read in ``direction`` from now on."""
        self._order(lambda: self._flips.__setitem__(direction, byte))

    def flip_bit_of(self, needle: bytes, direction: Direction) -> None:
        """Flip a bit in the middle of the next ``needle`` that is read whole in ``direction``.

        One that comes in two pieces is let through.
        """
        self._order(lambda: self._needles.__setitem__(direction, needle))

    def heal(self) -> None:
        """Be healthy again: what was held back goes on its way; a flip that waits is forgotten."""

        def healthy() -> None:
            self._weather = _Weather()
            self._flips.clear()
            self._needles.clear()

        self._order(healthy)

    def counts(self) -> TransportCounts:
        """Return the counts up to now, or until the transport was closed."""
        return self._counts if self._closed else self._order(lambda: self._counts)

    def open_connections(self) -> int:
        """Return the number of clients whose connections are forwarded at present."""
        return self._order(lambda: len(self._links))

    def close(self) -> None:
        with self._ordering:
            if self._closed:
                return
            self._closed = True
            self._orders.append(self._stop)
            self._wake.send(b"!")
        self._thread.join(hang_s())
        self._selector.close()
        for end in (self._listener, self._woken, self._wake):
            end.close()
        if self.location.startswith(UNIX):
            Path(self.location.removeprefix(UNIX)).unlink(missing_ok=True)

    def _change(self, **weather: Any) -> None:
        def change() -> None:
            self._weather = replace(self._weather, **weather)

        self._order(change)

    def _order(self, action: Callable[[], T]) -> T:
        """Have the transport's thread do something between two chunks; what it gives."""
        done: Future[T] = Future()

        def carry_out() -> None:
            try:
                done.set_result(action())
            except BaseException as error:  # goes to the one who gave the order
                done.set_exception(error)

        with self._ordering:
            if self._closed:
                raise ValueError(f"the transport at {self.location} is closed")
            self._orders.append(carry_out)
            self._wake.send(b"!")
        return done.result(hang_s())

    def _stop(self) -> None:
        self._over = True
        for link in list(self._links):
            self._drop(link, reset=True)

    def _cut(self) -> int:
        cut = len(self._links)
        for link in list(self._links):
            self._drop(link, reset=True)
        self._count(cut_connections=cut)
        return cut

    def _count(self, **more: int) -> None:
        grown = {name: getattr(self._counts, name) + number for name, number in more.items()}
        self._counts = replace(self._counts, **grown)

    def _serve(self) -> None:
        while not self._over:
            ready = [key.fileobj for key, _ in self._selector.select(self._next_due_in())]
            if self._listener in ready:
                self._accept()
            for link in list(self._links):
                self._forward(link)
            if self._woken in ready:
                self._woken.recv(4096)
            while self._orders:
                self._orders.popleft()()

    def _next_due_in(self) -> float | None:
        """Seconds until something that is held may go, None where nothing waits for time."""
        if self._weather.stalled:
            return None
        due = [due for link in self._links for pipe in link.pipes if (due := pipe.due) is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self) -> None:
        try:
            client = self._listener.accept()[0]
        except OSError:  # it has gone again
            return
        if self._weather.refusing:
            self._count(refused_connections=1)
            close_socket(client, reset=True)
            return
        try:
            server = connect(self._target)
        except OSError:
            self._count(unreachable=1)
            close_socket(client, reset=True)
            return
        client.setblocking(False)
        self._count(connections=1)
        self._links.add(Link(client, server))

    def _forward(self, link: Link) -> None:
        """Take and give what can be for one connection, and wait for the rest."""
        try:
            for pipe in link.pipes:
                self._take(pipe)
                self._give(pipe)
        except OSError as error:  # one side is gone, so the other one goes
            self._count(unreachable=int(isinstance(error, ConnectionRefusedError)))
            self._drop(link, reset=True)
            return
        if all(pipe.is_over for pipe in link.pipes):
            self._drop(link, reset=False)
            return
        for end, taking, giving in link.ends:
            wanted = (selectors.EVENT_READ if taking.wants_more else 0) | (
                selectors.EVENT_WRITE if giving.is_blocked else 0
            )
            self._await(end, wanted)

    def _await(self, end: socket.socket, wanted: int) -> None:
        known = self._selector.get_map().get(end)
        if known is None and wanted:
            self._selector.register(end, wanted)
        elif known is not None and not wanted:
            self._selector.unregister(end)
        elif known is not None and known.events != wanted:
            self._selector.modify(end, wanted)

    def _take(self, pipe: Pipe) -> None:
        while pipe.wants_more:
            try:
                chunk = pipe.source.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                pipe.has_ended = True
                return
            chunk = self._flipped(chunk, pipe.direction)
            if self._weather.stalled:
                self._count(stalled_bytes=len(chunk))
            if self._weather.delay_s:
                self._count(delayed_bytes=len(chunk))
            pipe.hold(chunk, time.monotonic() + self._weather.delay_s)

    def _give(self, pipe: Pipe) -> None:
        rate = self._weather.bytes_per_s
        pipe.is_blocked = False
        if self._weather.stalled:
            return
        while pipe.due is not None:
            now = time.monotonic()
            if pipe.due > now:
                return
            at_most = _CHUNK_BYTES if rate is None else max(1, int(rate * _SLOW_STEP_S))
            try:
                sent = pipe.send(at_most)
            except BlockingIOError:
                pipe.is_blocked = True
                return
            self._count(forwarded_bytes=sent)
            if rate is not None:
                self._count(throttled_bytes=sent)
                pipe.free_at = now + sent / rate
        if pipe.due is None:
            pipe.pass_on_the_end()

    def _flipped(self, chunk: bytes, direction: Direction) -> bytes:
        needle = self._needles.get(direction)
        if needle is not None and (at := chunk.find(needle)) >= 0:
            del self._needles[direction]
            self._flips[direction] = at + len(needle) // 2
        byte = self._flips.pop(direction, None)
        if byte is None:
            return chunk
        if byte >= len(chunk):
            self._flips[direction] = byte - len(chunk)
            return chunk
        self._count(flipped_bits=1)
        return chunk[:byte] + bytes([chunk[byte] ^ 1]) + chunk[byte + 1 :]

    def _drop(self, link: Link, *, reset: bool) -> None:
        self._links.discard(link)
        for end, _, _ in link.ends:
            self._await(end, 0)
            close_socket(end, reset=reset)
