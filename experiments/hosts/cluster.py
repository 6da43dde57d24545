"""Run a standing cluster on hosts, with TLS both ways."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

from experiments import chaos_processes
from experiments.hosts.certificates import FOLDER, JOB, OPERATOR, CertificateFolders, settings
from experiments.hosts.host import Host
from experiments.hosts.layouts import HEARTBEAT_TIMEOUT_S, Layout
from experiments.hosts.network import Running
from experiments.hosts.ray_nodes import FILES as RAY_FILES

_SHUFFLES = re.compile(r"^\d+ shuffles?$\n?", re.MULTILINE)
SPILL = "/tmp/spill"
JOURNAL = "/tmp/journal"
_METADATA_PORT = 5005
_DATA_PORT = 5010
_END_TIMEOUT_S = 40.0
"""The time limit for a server to end. A server is decommissioned for at most 30 s."""
_STATUS_TIMEOUT_S = 60.0


class Cluster:
    """The servers of a layout, whose logs are in ``folder``. `started` starts them."""

    def __init__(
        self,
        layout: Layout,
        running: Running,
        folder: Path,
        *,
        tls: bool = True,
        memory: str = "2 GiB",
    ) -> None:
        self.layout = layout
        self.metadata = f"grpc+{'tls' if tls else 'tcp'}://{layout.metadata}:{_METADATA_PORT}"
        """The location of the metadata server."""
        self.environment = environment(folder)
        """That of the processes on the hosts."""
        self._running = running
        self._folder = folder
        self._memory = memory
        self._certificates = CertificateFolders() if tls else None
        self._servers: dict[IPv4Address, subprocess.Popen[bytes]] = {}

    @property
    def mark(self) -> str:
        """The mark of all processes on the hosts."""
        return self.environment[chaos_processes.MARK]

    @property
    def pids(self) -> set[int]:
        return {server.pid for server in self._servers.values()}

    def start(self) -> None:
        """Start the servers, and give the driver and the operator their certificates.

        Raise RuntimeError with the log of a server that fails.
        """
        for address in self.layout.servers:
            self.start_server(address)
        for host in self.layout.callers:
            self.give_caller(host, JOB)
        self._operator = self.give_caller(self.layout.host_of(self.layout.metadata), OPERATOR)

    def give_caller(self, host: Host, name: str) -> list[str]:
        """Give a host the certificate of a caller, and return the options of a command."""
        if self._certificates is None:
            return []
        return self._certificates.give_caller(self._running[host], name)

    def give_nodes(self, hosts: Iterable[Host]) -> dict[str, str]:
        """Give hosts the certificates of nodes of Ray, and return the environment of all nodes."""
        given: dict[str, str] = {}
        if self._certificates is not None:
            for host in hosts:
                given |= self._certificates.give_node(self._running[host])
        return given

    def job_settings(self) -> list[str]:
        """Return the settings of a job that joins the cluster."""
        tls = settings(JOB) if self._certificates is not None else []
        return [f"cluster.metadata={self.metadata}", *tls]

    def start_server(self, address: IPv4Address) -> None:
        """Start the server at an address; a metadata server goes on with its journal."""
        running = self._running[self.layout.host_of(address)]
        tls = ["--insecure-network"]
        if self._certificates is not None:
            tls = self._certificates.give_server(running, address)
        if address == self.layout.metadata:
            module, port = "metadata", _METADATA_PORT
            options = ["--heartbeat-timeout", f"{HEARTBEAT_TIMEOUT_S} s", "--journal", JOURNAL]
        else:
            module, port = "data", _DATA_PORT
            running.path(SPILL).mkdir(exist_ok=True)
            options = ["--metadata", self.metadata, "--spill-dir", SPILL, "--memory", self._memory]
        where = ["--host", str(address), "--port", str(port)]
        command = [sys.executable, "-m", f"mrflight.servers.{module}", *where, *options, *tls]
        path = self._folder / f"{module}-{address}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                running.inside(command), env=self.environment, stdout=subprocess.PIPE, stderr=log
            )
        self._servers[address] = process
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"{path.stem} did not start: {path.read_text()[-2000:]}")

    def kill_server(self, address: IPv4Address) -> None:
        """Kill a server, and wait until it has ended."""
        server = self._servers.pop(address)
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()

    def lose(self, host: Host) -> None:
        """Kill all processes of a host at once."""
        self._running[host].kill_all()
        for address in [one for one in self._servers if self.layout.host_of(one) == host]:
            self.kill_server(address)

    def shuffles(self) -> list[str]:
        """Return the shuffles that the metadata server still has, as seen from its own host."""
        running = self._running[self.layout.host_of(self.layout.metadata)]
        command = [sys.executable, "-m", "mrflight.frontend.cli", "status", self.metadata]
        status = subprocess.run(
            running.inside([*command, *self._operator]),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_STATUS_TIMEOUT_S,
        )
        if status.returncode:
            return [f"the metadata server does not answer: {status.stderr.strip()}"]
        heading = _SHUFFLES.search(status.stdout)
        assert heading is not None, status.stdout
        return status.stdout[heading.end() :].splitlines()

    def stop(self) -> list[str]:
        """Stop all servers, and return those that did not end properly."""
        wrong = []
        for address, server in reversed(self._servers.items()):
            server.terminate()
            try:
                code = server.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                wrong.append(f"the server at {address} does not end after SIGTERM")
                continue
            if code:
                wrong.append(f"the server at {address} ended with code {code}")
        return wrong

    def files_left(self, lost: Container[Host]) -> list[str]:
        """Return what servers and jobs have left on the hosts that were not ``lost``."""
        return [
            f"file {name} on host {host.name}"
            for host, running in self._running.items()
            for name in running.files()
            if host not in lost and not name.startswith((FOLDER, JOURNAL, RAY_FILES))
        ]

    def kill(self) -> None:
        """Kill the servers that still run, and forget the journal."""
        for address in list(self._servers):
            self.kill_server(address)
        metadata = self._running[self.layout.host_of(self.layout.metadata)]
        metadata.path(JOURNAL).unlink(missing_ok=True)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of the processes on the hosts, marked with the name of a folder.

    gRPC might use a proxy, which cannot be reached from a host. Temporary files belong into the
    host's own folder. Settings of Ray are for another Ray.
    """
    hidden = ("http_proxy", "https_proxy", "grpc_proxy", "tmpdir")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in hidden and not name.startswith("RAY_")
    }
    return {**kept, "PYTHONFAULTHANDLER": "1", chaos_processes.MARK: str(folder)}


@contextlib.contextmanager
def started(
    layout: Layout,
    running: Running,
    folder: Path,
    *,
    tls: bool = True,
    memory: str = "2 GiB",
) -> Iterator[Cluster]:
    """Yield a running cluster, and kill what still runs at the end."""
    folder.mkdir()
    cluster = Cluster(layout, running, folder, tls=tls, memory=memory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
