"""What servers in actors of Ray are started with, by a job or by somebody's own program."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec

_MIB = 2**20
_EMPTY_BYTES = 128 * _MIB
"""Of a server that holds nothing, as Ray counts it: with what it shares with others."""


class ReservedPort:
    """A port that the system gives to nobody who asks for any, and that a server may listen on."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with contextlib.ExitStack() as stack:
            stack.callback(self._socket.close)
            # As gRPC's have it. This one does not listen, and is sent no connections.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, 0))
            stack.pop_all()
        self.number = int(self._socket.getsockname()[1])

    @property
    def location(self) -> str:
        """Of the server that will listen there."""
        return f"grpc+tcp://{self.host}:{self.number}"

    def close(self) -> None:
        self._socket.close()


class ServerLayout(msgspec.Struct, frozen=True):
    """The options of servers, and the memory that their actors declare."""

    metadata: str
    """Where the metadata server is, always."""
    journal: Path
    heartbeat_timeout_s: float
    memory_bytes: int
    """What each data server holds before it spills."""
    spill_dir: Path

    def options(self, kind: str) -> tuple[str, ...]:
        """As the command ``mrflight serve`` has them."""
        if kind == "metadata":
            timeout = f"{self.heartbeat_timeout_s} s"
            return ("--heartbeat-timeout", timeout, "--journal", str(self.journal))
        return (
            *("--metadata", self.metadata),
            *("--memory", str(self.memory_bytes)),
            *("--spill-dir", str(self.spill_dir)),
        )

    def declared_bytes(self, kind: str) -> int:
        """What Ray is to count for such an actor."""
        return _EMPTY_BYTES + (self.memory_bytes if kind == "data" else 0)
