"""Run a standing cluster whose servers are reached through proxies that can be cut."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from experiments import chaos_crashes, chaos_processes
from tests.support.faults.transport import FlakyTransport

HEARTBEAT_TIMEOUT = "2 s"
"""The time without a heartbeat after which a data server is declared lost. Embedded clusters have
the same."""

_END_TIMEOUT_S = 40.0
"""The time limit for a server to end. A server is decommissioned for at most 30 s."""


@dataclass
class Server:
    """A server process and the proxy in front of it."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    transport: FlakyTransport
    process: subprocess.Popen[bytes] = field(init=False)
    killed_pid: int | None = None
    """The last process that the run killed."""
    crashes: list[str] = field(default_factory=list)
    """The unexpected ends of its processes: those that the run neither killed nor stopped."""

    def start(self) -> None:
        """Start the server or restart it, and wait until it is ready."""
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Start the server without waiting for it."""
        if hasattr(self, "process"):
            self.end()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=subprocess.PIPE, stderr=log
            )

    def await_ready(self) -> None:
        """Wait until the server is ready.

        RuntimeError with its log is raised if it ends before that.
        """
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")

    def end(self) -> None:
        """Wait for the process to end, record an unexpected end, and release the process."""
        code = self.process.wait(_END_TIMEOUT_S)
        was_killed = self.process.pid == self.killed_pid
        self.crashes += chaos_crashes.unexpected_end(self.name, code, was_killed)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def handle(self) -> psutil.Process:
        return psutil.Process(self.process.pid)


class StandingCluster:
    """A metadata server and data servers that own a folder. `standing` starts them."""

    def __init__(self, folder: Path, data_servers: int, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        journal = str(folder / "metadata.journal")
        kept = ["--journal", journal, "--heartbeat-timeout", HEARTBEAT_TIMEOUT]
        self.metadata = self._server("metadata", kept)
        options = ["--metadata", self.metadata.transport.location, "--spill-dir", str(folder)]
        self.data = [self._server("data", options, number) for number in range(data_servers)]

    @property
    def servers(self) -> list[Server]:
        return [self.metadata, *self.data]

    def heal(self) -> None:
        """Resume stopped servers, restore connections, and restart a dead metadata server."""
        for server in self.servers:
            server.transport.heal()
            if server.process.poll() is None:
                chaos_processes.wake(server.handle)
        if self.metadata.process.poll() is not None:
            self.metadata.start()

    def stop(self) -> list[str]:
        """Stop all servers and return those that did not end.

        `crashes` has the unexpected ends afterwards.
        """
        wrong = []
        for server in self.data:
            if server.process.poll() is None:
                server.process.terminate()
        for server in [*self.data, self.metadata]:
            process = server.process
            if server is self.metadata and process.poll() is None:
                process.terminate()  # a second SIGTERM would kill one that is ending
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                server.killed_pid = process.pid
                wrong.append(f"{server.name} does not end after SIGTERM")
            server.end()
            server.transport.close()
        return wrong

    @property
    def crashes(self) -> list[str]:
        """The unexpected ends of servers that were seen so far; `stop` looks at all servers."""
        return [crash for server in self.servers for crash in server.crashes]

    def _server(self, module: str, options: list[str], number: int | None = None) -> Server:
        name = module if number is None else f"{module}{number}"
        socket = self._folder / f"{name}.sock"
        transport = FlakyTransport(f"grpc+unix://{socket}")
        own = ["--socket", str(socket), "--advertise", transport.location]
        command = [sys.executable, "-m", f"mrflight.servers.{module}", *own, *options]
        return Server(name, command, self._environment, self._folder / f"{name}.log", transport)


@contextlib.contextmanager
def standing(
    folder: Path, data_servers: int, environment: Mapping[str, str]
) -> Iterator[StandingCluster]:
    """Yield a running cluster, and kill what still runs at the end."""
    folder.mkdir()
    cluster = StandingCluster(folder, data_servers, environment)
    started: list[Server] = []
    try:
        for server in cluster.servers:
            server.begin()  # all at once: data servers wait for the metadata server
            started.append(server)
        for server in started:
            server.await_ready()
        yield cluster
    finally:
        for server in started:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
        for server in cluster.servers:
            server.transport.close()
