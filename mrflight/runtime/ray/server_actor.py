"""Runs a server of `mrflight.servers` in an actor of Ray."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from mrflight.config.identity import Identity
from mrflight.config.server_options import DATA, METADATA
from mrflight.security.credentials import Credentials, give


class HostedServer:
    """A server that ends with its process; `close` removes its files before."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._leaving = threading.Event()

    def start(
        self, kind: str, options: Sequence[str], port: int, credentials: Credentials | None
    ) -> tuple[str, str, int]:
        """Start the server on loopback, or with ``credentials`` on this node's address.

        Returns its location, node and pid.

        Port 0 takes a free port. Raises the errors of the server's command.
        """
        import ray

        # The library does not import servers; the job says which one to load.
        module = importlib.import_module(f"mrflight.servers.{kind}")
        listening = importlib.import_module("mrflight.servers.listening")
        command = {each.name: each for each in (METADATA, DATA)}[kind]
        parsed = command.parser(f"mrflight serve {kind}").parse_args(options)
        parsed.port = port
        if credentials is None:
            at = listening.listening(parsed)
        else:
            give(credentials)
            identity = Identity(given=credentials.name)
            parsed.host, parsed.verify_client = ray.util.get_node_ip_address(), True
            at = listening.over_tls(parsed, identity)
        running = self._open.enter_context(module.serving(parsed, at))
        return running.location, ray.get_runtime_context().get_node_id(), os.getpid()

    def stay(self) -> None:
        """Return when the server is closed; if it ends otherwise, Ray raises an error."""
        self._leaving.wait()

    def close(self) -> None:
        """Remove its files."""
        try:
            self._open.close()
        finally:
            self._leaving.set()


class MrflightMetadata(HostedServer):
    """A metadata server; Ray and ``ps`` show its process by this name."""


class MrflightData(HostedServer):
    """A data server; Ray and ``ps`` show its process by this name."""
