"""A standing cluster of real server processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import mrflight
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.faults import await_that

_ENDS_IN_S = 20.0


@dataclass(frozen=True)
class StandingCluster:
    """Its metadata server's location, and the processes."""

    metadata: str
    metadata_process: subprocess.Popen[str]
    data_processes: list[subprocess.Popen[str]]


@contextmanager
def data_server(metadata: str, *options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A data server that joins a cluster, and its ready line; it ends by itself, unless killed."""
    with server_process("data", "--metadata", metadata, *map(str, options)) as started:
        yield started


@contextmanager
def server_process(
    module: str, *options: str, stderr: IO[bytes] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server and its ready line; it ends by itself with code 0, unless the test kills it."""
    process = _started(module, *options, stderr=stderr)
    with process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.terminate()
            try:
                assert process.wait(_ENDS_IN_S) in (0, -signal.SIGKILL)
            finally:
                process.kill()  # or one that hangs outlives the test


def _started(module: str, *options: str, stderr: IO[bytes] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"mrflight.servers.{module}", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


@contextmanager
def standing_cluster(
    data_servers: int = 2,
    journal: Path | None = None,
    stderr: IO[bytes] | None = None,
    sockets: Path | None = None,
    options: Sequence[str] = (),
) -> Iterator[StandingCluster]:
    """Servers on free loopback ports, started by their commands and stopped by SIGTERM.

    They listen on unix sockets in the folder ``sockets`` if there is one. Data servers get
    ``options``. Each must end by itself
    with code 0, unless the test kills it.
    """
    started: list[subprocess.Popen[str]] = []

    def start(module: str, *options: str) -> tuple[subprocess.Popen[str], str]:
        process = _started(module, *options, stderr=stderr)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().split()[-1]

    try:

        def listening(name: str) -> tuple[str, str]:
            return ("--port", "0") if sockets is None else ("--socket", str(sockets / name))

        kept = () if journal is None else ("--journal", str(journal))
        metadata, location = start("metadata", *listening("metadata"), *kept)
        data = [
            start("data", "--metadata", location, *listening(f"data{number}"), *options)[0]
            for number in range(data_servers)
        ]
        yield StandingCluster(location, metadata, data)
    finally:
        for process in reversed(started):
            if process.poll() is None:
                process.terminate()
        try:
            codes = [process.wait(_ENDS_IN_S) for process in started]
        finally:
            for process in started:
                process.kill()  # or one that hangs, or is stopped, outlives the test
                if process.stdout is not None:
                    process.stdout.close()
    # A second SIGTERM, to one that a test told to stop, may come when Python has let go of it.
    assert all(code in (0, -signal.SIGKILL, -signal.SIGTERM) for code in codes), codes


def await_no_shuffles(metadata: str) -> None:
    """Wait until the cluster knows no shuffle, and its data servers hold nothing."""
    with mrflight.connect(metadata) as cluster, Connections() as connections:

        def is_free() -> bool:
            status = cluster.status()
            held = [
                call(connections, server.location, DataAction.STATS, Done(), ServerStats)
                for server in status.servers
            ]
            return not status.shuffles and all(stats.size_bytes == 0 for stats in held)

        await_that(is_free, "the shuffles to be dropped")
