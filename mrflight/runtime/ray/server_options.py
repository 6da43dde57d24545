"""The options of servers in actors of Ray, for a job or for a user's program."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec

from mrflight.runtime.supervised_cluster import ClusterOptions

_MIB = 2**20
_EMPTY_BYTES = 128 * _MIB
"""An empty server as Ray counts it, with the memory that it shares with others."""


class ReservedPort:
    """A port that the system does not give to other programs, and that a server may listen on."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with contextlib.ExitStack() as stack:
            stack.callback(self._socket.close)
            # gRPC's sockets set this, too. This one does not listen and gets no connections.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, 0))
            stack.pop_all()
        self.number = int(self._socket.getsockname()[1])

    def location(self, *, is_encrypted: bool) -> str:
        """Return the location of the server that will listen there."""
        return f"grpc+{'tls' if is_encrypted else 'tcp'}://{self.host}:{self.number}"

    def close(self) -> None:
        self._socket.close()


class ServerOptions(msgspec.Struct, frozen=True):
    """The options of a cluster whose servers are actors."""

    metadata: str
    """The location of the metadata server, which never changes."""
    journal: Path
    cluster: ClusterOptions

    def arguments(self, kind: str) -> tuple[str, ...]:
        """Return the arguments of a server, as ``mrflight serve`` takes them."""
        return self.cluster.arguments(kind, self.metadata, self.journal)

    def declared_bytes(self, kind: str) -> int:
        """Return the memory that the actor of a server declares to Ray."""
        return _EMPTY_BYTES + (self.cluster.server_memory_bytes if kind == "data" else 0)
