"""Start a Ray whose nodes are on hosts."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from experiments.chaos_processes import wait_until
from experiments.hosts.host import Host
from experiments.hosts.network import Running

FILES = "/tmp/ray/"
"""Where each node has its logs and sockets."""
_PORT = 6379
_START_TIMEOUT_S = 120.0
_STARTS = 3
_NODE = ("-m", "ray.scripts.scripts", "start", "--block")
_STORE = ("--object-store-memory", str(80 << 20), "--disable-usage-stats")


def with_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the nodes of a Ray, and of its jobs, with a new token."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    return {**environment, **token, "RAY_worker_niceness": "0"}


class RayNodes:
    """A Ray with a node on each host of ``cores``, the first one its head, and its cores there."""

    def __init__(
        self,
        running: Running,
        cores: Mapping[Host, int],
        environment: Mapping[str, str],
        logs: Path,
    ) -> None:
        self.environment = with_token(environment)
        """That of the jobs on this Ray."""
        self._running = running
        self._cores = cores
        self._logs = logs
        self._nodes: dict[Host, subprocess.Popen[bytes]] = {}
        head, *_ = cores
        self.address = f"{head.address}:{_PORT}"

    def start(self) -> None:
        """Start all nodes, again if one of them fails: each gives up after 30 s on a busy machine.

        RuntimeError is raised with the output of a node that never starts.
        """
        for number in range(1, _STARTS + 1):
            try:
                self._start_all()
            except RuntimeError:
                self.stop()
                if number == _STARTS:
                    raise
            else:
                return

    def _start_all(self) -> None:
        """Start the head, and then the others at once."""
        head, *others = self._cores
        self._start(head, "--head", "--port", str(_PORT), "--include-dashboard", "false")
        self._await(head)
        for host in others:
            self._start(host, "--address", self.address)
        for host in others:
            self._await(host)

    def stop(self) -> None:
        """Kill all processes on the hosts of the nodes."""
        for host in self._cores:
            self._running[host].kill_all()
        for node in self._nodes.values():
            node.wait()
        self._nodes.clear()

    def _start(self, host: Host, *role: str) -> None:
        command = [sys.executable, *_NODE, *_STORE, *role]
        command += ["--num-cpus", str(self._cores[host]), "--node-ip-address", str(host.address)]
        with self._log(host).open("wb") as out:
            self._nodes[host] = subprocess.Popen(
                self._running[host].inside(command),
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _log(self, host: Host) -> Path:
        return self._logs / f"ray-{host.name}.log"

    def _await(self, host: Host) -> None:
        log = self._log(host)

        def is_up() -> bool:
            if self._nodes[host].poll() is not None:
                raise RuntimeError(f"ray start on host {host.name} failed: {log.read_text()}")
            return "Ray runtime started" in log.read_text()

        if not wait_until(is_up, _START_TIMEOUT_S):
            raise RuntimeError(f"ray start on host {host.name} takes too long: {log.read_text()}")


@contextmanager
def ray_nodes(
    running: Running, cores: Mapping[Host, int], environment: Mapping[str, str], logs: Path
) -> Iterator[RayNodes]:
    """Yield a Ray that runs, and stop it at the end."""
    nodes = RayNodes(running, cores, environment, logs)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()


def is_of_a_job(pid: int) -> bool:
    """Return whether a process is one of mrflight's, and not one of Ray's own."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False  # it has ended
    return any(word.startswith(("mrflight", "ray::Mrflight")) for word in words)
