"""Run a standing cluster on two hosts."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from experiments.two_hosts_conditions import HEARTBEAT_TIMEOUT_S, Layout
from experiments.two_hosts_network import Host

_METADATA_PORT = 5005
_DATA_PORT = 5010
_END_TIMEOUT_S = 40.0
"""The time limit for a server to end. A server is decommissioned for at most 30 s."""
_STATUS_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class _Server:
    name: str
    process: subprocess.Popen[bytes]


class Cluster:
    """The servers of a layout, which own a folder. `running` starts them."""

    def __init__(self, layout: Layout, folder: Path, environment: Mapping[str, str]) -> None:
        self.metadata = f"grpc+tcp://{layout.metadata}:{_METADATA_PORT}"
        """The location of the metadata server."""
        self._layout = layout
        self._folder = folder
        self._environment = environment
        self._servers: list[_Server] = []

    @property
    def pids(self) -> set[int]:
        return {server.process.pid for server in self._servers}

    def start(self) -> None:
        """Start the servers one by one; raise RuntimeError with the log of one that fails."""
        timeout = ["--heartbeat-timeout", f"{HEARTBEAT_TIMEOUT_S} s"]
        self._start("metadata", self._layout.metadata, _METADATA_PORT, timeout)
        options = ["--metadata", self.metadata, "--spill-dir", str(self._folder)]
        for address in self._layout.data:
            self._start("data", address, _DATA_PORT, options)

    def shuffles(self) -> list[str]:
        """Return the shuffles that the metadata server still has, as seen from its own host."""
        host = self._layout.host_of(self._layout.metadata)
        command = [sys.executable, "-m", "mrflight.frontend.cli", "status", self.metadata]
        status = subprocess.run(
            host.inside(command),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_STATUS_TIMEOUT_S,
        )
        if status.returncode:
            return [f"the metadata server does not answer: {status.stderr.strip()}"]
        _, is_listed, listed = status.stdout.partition(" shuffles\n")
        assert is_listed, status.stdout
        return listed.splitlines()

    def stop(self) -> list[str]:
        """Stop all servers.

        Return those that did not end properly, and the files that they left.
        """
        wrong = []
        for server in reversed(self._servers):
            server.process.terminate()
            try:
                code = server.process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                wrong.append(f"{server.name} does not end after SIGTERM")
                continue
            if code:
                wrong.append(f"{server.name} ended with code {code}")
        kept = [path for path in self._folder.iterdir() if path.suffix != ".log"]
        return wrong + [f"spill file {path.name}" for path in kept]

    def kill(self) -> None:
        """Kill the servers that still run."""
        for server in self._servers:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
            if server.process.stdout is not None:
                server.process.stdout.close()

    def _start(self, module: str, address: IPv4Address, port: int, options: list[str]) -> None:
        host: Host = self._layout.host_of(address)
        where = ["--host", str(address), "--port", str(port)]
        command = [sys.executable, "-m", f"mrflight.servers.{module}", *where, *options]
        path = self._folder / f"{module}-{address}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                host.inside(command), env=self._environment, stdout=subprocess.PIPE, stderr=log
            )
        self._servers.append(_Server(path.stem, process))
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"{path.stem} did not start: {path.read_text()[-2000:]}")


@contextlib.contextmanager
def running(layout: Layout, folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield a running cluster, and kill what still runs at the end."""
    folder.mkdir()
    cluster = Cluster(layout, folder, environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
