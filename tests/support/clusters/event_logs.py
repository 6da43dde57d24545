"""A cluster that keeps event logs, of real server processes that are killed and come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

import mrflight
from mrflight.config.identity import ClientOptions
from mrflight.errors import MrflightError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.client.log_client import LogClient
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.cluster import Server, server_process
from tests.support.faults import stopped_server
from tests.support.suite.waiting import hang_s

HEARTBEAT_TIMEOUT = "2 s"
"""So soon a server that was killed is lost. So is one that is slow for so long: see `PATIENT`."""

PATIENT = "10 min"
"""The heartbeat timeout of a cluster in which no server is killed."""

SCHEMA = pa.schema([("producer", pa.int64()), ("n", pa.int64())])


def numbers(producer: int, *values: int) -> pa.RecordBatch:
    """Rows of one producer."""
    return pa.record_batch([[producer] * len(values), list(values)], schema=SCHEMA)


class LogCluster:
    """A metadata server with a journal, and data servers with a log folder each."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        data_servers: int,
        killed_at: Sequence[str],
        heartbeat_timeout: str,
    ) -> None:
        self._folder = folder
        self._stack = stack
        self._metadata_options = (
            *("--journal", str(folder / "journal")),
            *("--heartbeat-timeout", heartbeat_timeout),
        )
        self.metadata, self.location = self._started(
            "metadata", "--port", "0", *self._metadata_options
        )
        self.data: list[Server] = []
        self.locations: list[str] = []
        for number in range(data_servers):
            process, location = self._data(number, () if number else killed_at)
            self.data.append(process)
            self.locations.append(location)

    def _started(self, module: str, *options: str) -> tuple[Server, str]:
        process, line = self._stack.enter_context(server_process(module, *options, is_warm=True))
        return process, line.split()[-1]

    def _data(self, number: int, killed_at: Sequence[str] = ()) -> tuple[Server, str]:
        at = ("--metadata", self.location, "--port", "0", "--log-dir", str(self.log_dir(number)))
        options = (*at, "--drain-timeout", "5 s")
        if killed_at:
            return self._started(stopped_server.__name__, *killed_at, *options)
        return self._started("data", *options)

    def log_dir(self, number: int) -> Path:
        """The folder of the event logs of a data server."""
        return self._folder / f"logs{number}"

    def kill_data(self, number: int) -> None:
        """Kill a data server, and wait until its process is gone."""
        self.data[number].kill()
        self.data[number].wait()

    def restart_data(self, number: int) -> None:
        """Start a data server with the log folder of one that was killed."""
        self.data[number], self.locations[number] = self._data(number)

    def restart_metadata(self) -> None:
        """Kill the metadata server, and start it with its journal at its port."""
        self.metadata.kill()
        self.metadata.wait()
        port = self.location.rpartition(":")[2]
        self.metadata, _ = self._started("metadata", "--port", port, *self._metadata_options)

    def connect(self, reconnect_s: float | None = None) -> mrflight.Cluster:
        """Return a client, which waits for servers as long as for what hangs by default."""
        timeouts = Timeouts(reconnect_s=hang_s() if reconnect_s is None else reconnect_s)
        return mrflight.connect(self.location, timeouts=timeouts)

    def owner(self, log: str) -> int:
        """The number of the data server that owns a log."""
        with LogClient(self.location, ClientOptions()) as client:
            return self.locations.index(client.describe(ShuffleKey(log)).owner_location)

    def is_owned(self, log: str, not_by: int) -> bool:
        """Whether another server than this one owns a log."""
        with LogClient(self.location, ClientOptions()) as client:
            owner = client.describe(ShuffleKey(log)).owner_location
        return owner not in ("", self.locations[not_by])

    def members(self, log: str) -> list[int]:
        """The numbers of the data servers that are alive and hold all of a log."""
        with LogClient(self.location, ClientOptions()) as client:
            members = client.describe(ShuffleKey(log)).members
        return [self.locations.index(each.location) for each in members if each.location]


@contextmanager
def log_cluster(
    folder: Path,
    data_servers: int = 1,
    killed_at: Sequence[str] = (),
    heartbeat_timeout: str = HEARTBEAT_TIMEOUT,
) -> Iterator[LogCluster]:
    """Start the servers. ``killed_at``: a step of `stopped_server` at which the first data server
    kills itself, and which time."""
    with ExitStack() as stack:
        yield LogCluster(folder, stack, data_servers, killed_at, heartbeat_timeout)


def held(cluster: mrflight.Cluster, log: str) -> list[tuple[int, int, int]]:
    """The offset, producer and number of every row, in order."""
    found = []
    for part in cluster.read_log(log, cluster.log_state(log).low):
        rows = part.rows.to_pydict()
        offsets = range(part.start, part.stop)
        found += list(zip(offsets, rows["producer"], rows["n"], strict=True))
    return found


class Producers:
    """Threads that append numbers, one row at a time, and note what is acknowledged."""

    def __init__(self, location: str, log: str, count: int) -> None:
        self.acknowledged: dict[int, dict[int, int]] = {each: {} for each in range(count)}
        """The offset of each number of each producer."""
        self.errors: list[MrflightError] = []
        self._location, self._log = location, log
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, producer: int) -> None:
        timeouts = Timeouts(reconnect_s=hang_s())
        with mrflight.connect(self._location, timeouts=timeouts) as cluster:
            number = 0
            while not self._stopping.is_set():
                try:
                    appended = cluster.append(self._log, numbers(producer, number))
                except MrflightError as error:
                    self.errors.append(error)
                    return
                self.acknowledged[producer][number] = appended.start
                number += 1

    def count(self) -> int:
        """How many rows have been acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def wait(self, seconds: float) -> None:
        """Let them append for a while."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """Wait until every thread has its last answer."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def check_rows(rows: list[tuple[int, int, int]], producers: Producers) -> None:
    """Every acknowledged row is there once, at its offset, in the order of its producer."""
    assert [offset for offset, _, _ in rows] == list(range(len(rows)))
    for producer, acknowledged in producers.acknowledged.items():
        mine = [(offset, number) for offset, sender, number in rows if sender == producer]
        assert [number for _, number in mine] == list(range(len(acknowledged))), producer
        assert {number: offset for offset, number in mine} == acknowledged


@contextmanager
def producing(servers: LogCluster, cluster: mrflight.Cluster, log: str) -> Iterator[Producers]:
    """Eight producers, which no fault of the block may keep from appending; see `check_rows`."""
    producers = Producers(servers.location, log, 8)
    try:
        yield producers
    finally:
        producers.stop()
    assert not producers.errors
    check_rows(held(cluster, log), producers)
