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

_PORT = 6379
_START_TIMEOUT_S = 120.0
_NODE = ("-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1")
_STORE = ("--object-store-memory", str(80 << 20), "--disable-usage-stats")


def with_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the nodes of a Ray, and of its jobs, with a new token."""
    kept = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    return {**kept, **token, "RAY_worker_niceness": "0"}


@contextmanager
def ray_nodes(running: Running, environment: Mapping[str, str], logs: Path) -> Iterator[str]:
    """Yield the address of a Ray with a node of one core on each host, the first one its head.

    RuntimeError is raised with the output of a node that does not start.
    """
    address, nodes = "", list[subprocess.Popen[bytes]]()
    try:
        for host in running:
            role = ["--address", address] if address else _head()
            command = [sys.executable, *_NODE, *_STORE, *role]
            command += ["--node-ip-address", str(host.address)]
            nodes.append(_started(running, host, command, environment, logs))
            address = address or f"{host.address}:{_PORT}"
        yield address
    finally:
        for host in running.values():
            host.kill_all()
        for node in nodes:
            node.wait()


def _head() -> list[str]:
    return ["--head", "--port", str(_PORT), "--include-dashboard", "false"]


def _started(
    running: Running, host: Host, command: list[str], environment: Mapping[str, str], logs: Path
) -> subprocess.Popen[bytes]:
    log = logs / f"ray-{host.name}.log"
    with log.open("wb") as out:
        node = subprocess.Popen(
            running[host].inside(command),
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )

    def is_up() -> bool:
        if node.poll() is not None:
            raise RuntimeError(f"ray start on host {host.name} failed: {log.read_text()}")
        return "Ray runtime started" in log.read_text()

    if not wait_until(is_up, _START_TIMEOUT_S):
        raise RuntimeError(f"ray start on host {host.name} takes too long: {log.read_text()}")
    return node
