"""A server of `mrflight.servers` in an actor of Ray's."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack


class HostedServer:
    """Ends with its process, whatever it holds; `close` removes its files first."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._leaving = threading.Event()

    def start(
        self, kind: str, options: Sequence[str], port: int, is_local: bool
    ) -> tuple[str, str, int]:
        """Start the server on this node's address, or on loopback: its location, node and pid.

        Port 0 takes a free one. Raises what the server's command would refuse.
        """
        import ray

        # The library knows no server: which one it is comes from a job.
        module = importlib.import_module(f"mrflight.servers.{kind}")
        host = "127.0.0.1" if is_local else ray.util.get_node_ip_address()
        parsed = module.parser().parse_args(options)
        running = self._open.enter_context(module.serving(parsed, f"grpc+tcp://{host}:{port}"))
        return running.location, ray.get_runtime_context().get_node_id(), os.getpid()

    def stay(self) -> None:
        """Return when the server leaves; what Ray raises instead tells its end."""
        self._leaving.wait()

    def close(self) -> None:
        """Remove what it has on disk."""
        try:
            self._open.close()
        finally:
            self._leaving.set()


class MrflightMetadata(HostedServer):
    """Whose name is what Ray, and ``ps``, call its process."""


class MrflightData(HostedServer):
    """The same for data servers."""
