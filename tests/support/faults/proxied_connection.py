"""A client's connection that a proxy forwards: two sockets, and the bytes between them."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from typing import Literal

Direction = Literal["to server", "from server"]

UNIX = "grpc+unix://"
TCP = "grpc+tcp://"

_HELD_BYTES = 1 << 20
"""The bytes that are taken from one side before the other takes them; then the sender waits."""
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, no time


class Pipe:
    """One direction of a connection: what was taken of one end and not yet given to the other."""

    def __init__(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        self.source = source
        self.direction = direction
        self.has_ended = False
        self.is_blocked = False
        """The sink takes no more at present."""
        self.free_at = 0.0
        """The time at which a throttle lets the next bytes go."""
        self.is_over = False
        self._sink = sink
        self._held: deque[tuple[float, memoryview]] = deque()
        self._held_bytes = 0

    @property
    def wants_more(self) -> bool:
        """Return whether the source should be read."""
        return not self.has_ended and self._held_bytes < _HELD_BYTES

    @property
    def due(self) -> float | None:
        """Return when the next bytes may go; None if there are none or the sink takes none."""
        return max(self._held[0][0], self.free_at) if self._held and not self.is_blocked else None

    def hold(self, chunk: bytes, due: float) -> None:
        """Keep bytes until ``due``, on the monotonic clock."""
        self._held.append((due, memoryview(chunk)))
        self._held_bytes += len(chunk)

    def send(self, at_most: int) -> int:
        """Give the next bytes; how many went. BlockingIOError where the sink takes none."""
        due, chunk = self._held[0]
        sent = self._sink.send(chunk[:at_most])
        if sent == len(chunk):
            self._held.popleft()
        else:
            self._held[0] = (due, chunk[sent:])
        self._held_bytes -= sent
        return sent

    def pass_on_the_end(self) -> None:
        """Tell the sink that nothing more comes, once the source has said so."""
        if self.has_ended and not self._held and not self.is_over:
            self.is_over = True
            with contextlib.suppress(OSError):  # it has closed first
                self._sink.shutdown(socket.SHUT_WR)


class Link:
    """A client's connection and the one to the server that was made for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        up = Pipe(client, server, "to server")
        down = Pipe(server, client, "from server")
        self.pipes = (up, down)
        self.ends = ((client, up, down), (server, down, up))
        """Each socket with the pipe that takes from it and the one that gives to it."""


def _address(location: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    if location.startswith(UNIX):
        return socket.AF_UNIX, location.removeprefix(UNIX)
    host, colon, port = location.removeprefix(TCP).rpartition(":")
    if not location.startswith(TCP) or not colon or not port.isdecimal():
        raise ValueError(f"{location!r} is neither {TCP}HOST:PORT nor {UNIX}PATH")
    return socket.AF_INET, (host, int(port))


def listen(location: str) -> socket.socket:
    """A socket that listens; ValueError for what is no location, OSError where it is taken."""
    family, address = _address(location)
    listener = socket.socket(family)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def location_of(listener: socket.socket, location: str) -> str:
    """``location`` with the port that was taken."""
    if location.startswith(UNIX):
        return location
    host, port = listener.getsockname()
    return f"{TCP}{host}:{port}"


def connect(location: str) -> socket.socket:
    """A socket that connects, or has; OSError where nobody listens."""
    family, address = _address(location)
    connecting = socket.socket(family)
    connecting.setblocking(False)
    try:
        with contextlib.suppress(BlockingIOError if family == socket.AF_INET else InterruptedError):
            connecting.connect(address)
    except OSError:
        connecting.close()
        raise
    return connecting


def close(end: socket.socket, *, reset: bool) -> None:
    """Close a socket; with ``reset``, tcp tells the other side that it was no orderly end."""
    if reset and end.family == socket.AF_INET:
        with contextlib.suppress(OSError):  # the other side was first
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
