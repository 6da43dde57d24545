"""The processes around a driver: a real metadata server, and simulated servers and workers."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import psutil
from pyarrow import flight

from experiments.scaling import heartbeats, simulated_worker
from experiments.scaling.executor import SimulatedExecutor
from experiments.scaling.measured import Traffic
from experiments.scaling.metadata import FIGURES, Asked
from experiments.scaling.size import Size

_WORKER_THREADS = 8
_ENDS_WITHIN_S = 60.0

_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class SimulatedCluster:
    """The part of a cluster that a driver sees."""

    metadata: str
    metadata_pid: int
    executor: SimulatedExecutor
    servers: Connection
    client: flight.FlightClient

    def traffic(self) -> Traffic:
        """The messages so far, of all to the metadata server and of the driver to workers."""
        (body,) = self.client.do_action((FIGURES, b""))
        figures = msgspec.json.decode(body.body, type=Asked)
        calls = self.executor
        return Traffic(
            Counter(figures.messages) + calls.messages,
            Counter(figures.received) + calls.sent,
            Counter(figures.sent) + calls.received,
        )

    def notify_servers(self, message: object) -> None:
        """Send a message to the simulated servers, and wait until it is done."""
        self.servers.send(message)
        self.servers.recv()


@contextmanager
def metadata_server(journal: Path) -> Iterator[tuple[str, int]]:
    """Start a metadata server, and return its location and process.

    It replays an existing journal.
    """
    command = [sys.executable, "-m", "experiments.scaling.metadata", "--port", "0"]
    with subprocess.Popen(
        [*command, "--journal", str(journal)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise AssertionError(f"the metadata server ended with code {process.wait()}")
            yield line.split()[-1], process.pid
        finally:
            process.terminate()
            process.wait(_ENDS_WITHIN_S)


@contextmanager
def simulated_cluster(size: Size, journal: Path) -> Iterator[SimulatedCluster]:
    """Run all processes until the driver has ended."""
    with metadata_server(journal) as (location, pid):
        servers, theirs = _spawn.Pipe()
        beating = _spawn.Process(target=heartbeats.simulate, args=(theirs, location, size.servers))
        beating.start()
        calls, workers_end = _spawn.Pipe()
        working = _spawn.Process(
            target=simulated_worker.simulate, args=(workers_end, size, _WORKER_THREADS)
        )
        working.start()
        executor = SimulatedExecutor(size.workers, calls)
        try:
            servers.recv()
            client = flight.FlightClient(location)
            yield SimulatedCluster(location, pid, executor, servers, client)
            client.close()
            servers.send("end")
            executor.close()
            for process in (beating, working):
                process.join(_ENDS_WITHIN_S)
        finally:
            for process in (beating, working):
                process.kill()


@dataclass(frozen=True)
class Resumed:
    """The cost of replaying a journal."""

    seconds: float
    """The seconds from the start of the process to its first answer."""
    peak_bytes: int


def resume(journal: Path) -> Resumed:
    """Start another metadata server with the journal of one that has ended."""
    started = time.monotonic()
    with metadata_server(journal) as (_, pid):
        seconds = time.monotonic() - started
        return Resumed(seconds, psutil.Process(pid).memory_info().rss)
