"""A standing cluster of real server processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class StandingCluster:
    """Its metadata server's location, and the processes."""

    metadata: str
    metadata_process: subprocess.Popen[str]
    data_processes: list[subprocess.Popen[str]]


@contextmanager
def standing_cluster(data_servers: int = 2) -> Iterator[StandingCluster]:
    """Servers on free loopback ports, started by their commands and stopped by SIGTERM.

    Each must end by itself with code 0.
    """
    started: list[subprocess.Popen[str]] = []

    def start(module: str, *options: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"mrflight.servers.{module}", *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().split()[-1]

    try:
        metadata, location = start("metadata", "--port", "0")
        data = [start("data", "--metadata", location)[0] for _ in range(data_servers)]
        yield StandingCluster(location, metadata, data)
    finally:
        for process in reversed(started):
            if process.poll() is None:
                process.terminate()
        codes = [process.wait(timeout=20) for process in started]
        for process in started:
            if process.stdout is not None:
                process.stdout.close()
    assert not any(code > 0 for code in codes), codes
