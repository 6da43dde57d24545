"""A port that nobody but the server that it is meant for gets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"


class PortTakenError(Exception):
    """Somebody else listens there."""


@contextmanager
def reserved_port(port: int = 0) -> Iterator[int]:
    """A free port of loopback, or the one that is asked for.

    It is bound, but nobody listens: so the system gives it to no one else, while a server that
    sets SO_REUSEADDR, as those in Go and Java do, can take it, and again after a restart.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((LOOPBACK, port))
        except OSError as error:
            raise PortTakenError(f"port {port} of {LOOPBACK} is taken: {error}") from error
        yield holder.getsockname()[1]
