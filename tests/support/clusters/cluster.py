"""A standing cluster of real server processes."""

from __future__ import annotations

import os
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
from tests.support.commands.driver import shared_warm_driver
from tests.support.commands.warm_driver import ForkedServer
from tests.support.suite.waiting import await_that, hang_s

Server = subprocess.Popen[str] | ForkedServer
"""A server's process, of an interpreter of its own or forked from the warm process."""


@dataclass(frozen=True)
class StandingCluster:
    """Its metadata server's location, and the processes."""

    metadata: str
    metadata_process: Server
    data_processes: list[Server]


@contextmanager
def data_server(
    metadata: str, *options: object, is_warm: bool = True
) -> Iterator[tuple[Server, str]]:
    """A data server that joins a cluster, and its ready line; it ends by itself, unless killed."""
    words = ("--metadata", metadata, *map(str, options))
    with server_process("data", *words, is_warm=is_warm) as started:
        yield started


@contextmanager
def server_process(
    module: str, *options: str, stderr: IO[bytes] | None = None, is_warm: bool = False
) -> Iterator[tuple[Server, str]]:
    """A server and its ready line; it ends by itself with code 0, unless it is killed.

    ``module`` is its name in `mrflight.servers`, or the whole name of another one.
    """
    process = _started(module, *options, stderr=stderr, is_warm=is_warm)
    with process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.terminate()
            try:
                assert process.wait(hang_s()) in (0, -signal.SIGKILL)
            finally:
                process.kill()  # or one that hangs outlives the test


def _started(
    module: str, *options: str, stderr: IO[bytes] | None = None, is_warm: bool = False
) -> Server:
    """Start a server; with ``is_warm`` by a fork, unless the test has another environment."""
    command = [module if "." in module else f"mrflight.servers.{module}", *options]
    if is_warm and (warm := shared_warm_driver()).takes(os.environ):
        return warm.start_server(command, os.environ, 2 if stderr is None else stderr.fileno())
    command = [sys.executable, "-m", *command]
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
    started: list[Server] = []

    def start(module: str, *options: str) -> tuple[Server, str]:
        process = _started(module, *options, stderr=stderr, is_warm=True)
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
            codes = [process.wait(hang_s()) for process in started]
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
