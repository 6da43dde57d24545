"""Servers that hostile requests leave as they were, and how such requests are sent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
from pyarrow import flight

import mrflight
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import DataAction, MetadataAction
from tests.support.clusters.cluster import StandingCluster, standing_cluster
from tests.support.suite.waiting import TooSlow, await_that, hang_s

SHUFFLE = "clicks-1"
"""One that is there, as examples of messages have this for a text."""
MAX_GROWTH_BYTES = 20 * 2**20
"""How much a server's memory may grow by all requests of a test. It grew by 0 to 13 MiB, and by at
most 3 MiB more with four times as many requests."""
MAX_POOLED_THREADS = 2
"""The threads that gRPC may keep in addition, because its pools grow with the load."""
GRPCS_THREADS = ("event_engine", "grpc", "lifeguard")
"""The beginnings of the names of gRPC's threads. The others are Python's and Arrow's."""
BATCH = pa.record_batch({"n": pa.array([1, 2, None]), "text": ["a", None, "c"]})


class Footprint(NamedTuple):
    """The resources that a process uses."""

    threads: int
    pooled_threads: int
    files: int
    memory_bytes: int


@dataclass(frozen=True)
class Servers:
    """A metadata server and a data server, which both write to a log."""

    cluster: mrflight.Cluster
    standing: StandingCluster
    data: str
    log: Path

    @property
    def metadata(self) -> str:
        return self.standing.metadata

    @property
    def started(self) -> list[subprocess.Popen[str]]:
        return [self.standing.metadata_process, *self.standing.data_processes]

    def footprints(self) -> list[Footprint]:
        return [footprint(psutil.Process(process.pid)) for process in self.started]


@contextmanager
def logging_servers(log: Path) -> Iterator[Servers]:
    """They end well, and have logged no surprise then either."""
    with (
        log.open("wb") as stderr,
        standing_cluster(data_servers=1, stderr=stderr, options=["--compressed-puts"]) as standing,
        mrflight.connect(standing.metadata) as client,
    ):
        (data,) = client.status().servers
        yield Servers(client, standing, data.location, log)
    assert "INFO mrflight.servers.process" in log.read_text()
    assert surprises(log) == []


@contextmanager
def unharmed(servers: Servers) -> Iterator[None]:
    """At the end they do as before, hold as much as before, and have logged no surprise."""
    assert_shuffles(servers)
    wait_for_a_heartbeat(servers)  # for which the data server has a connection of its own
    before = servers.footprints()
    yield
    tidy_up(servers)
    assert_shuffles(servers)
    assert stats(servers) == (0, 0, 0)
    assert_footprints(servers, before)
    assert [process.poll() for process in servers.started] == [None, None]
    assert surprises(servers.log) == []


def surprises(log: Path) -> list[str]:
    signs = ("Traceback", "a request failed in", "a stream failed")
    return [line for line in log.read_text().splitlines() if any(sign in line for sign in signs)]


def assert_shuffles(servers: Servers) -> None:
    shuffle = servers.cluster.create_shuffle("works", partitions=4)
    with shuffle.writer(map_id=0, key=["n"]) as out:
        out.write(pa.record_batch({"n": range(1_000)}))
    seen = [n for p in range(4) for piece in shuffle.reader(p) for n in piece["n"].to_pylist()]
    assert sorted(seen) == list(range(1_000))
    shuffle.drop()


def wait_for_a_heartbeat(servers: Servers) -> None:
    """It tells the data server of a shuffle that was dropped without it.

    The rows are compressed, so that Arrow's threads are there from now on.
    """
    servers.cluster.create_shuffle("forgotten", partitions=1)
    path = flight.FlightDescriptor.for_path("forgotten", "0", "0", "0")
    Put(path, BATCH.schema, [(BATCH, None)], compression="lz4").send_to(servers.data)
    assert stats(servers)[0] == 1
    ask(servers.metadata, MetadataAction.DROP_SHUFFLE, '{"id": "forgotten"}')
    await_that(lambda: not stats(servers)[0], "the data server to drop it", pause_s=0.05)


def footprint(process: psutil.Process) -> Footprint:
    """Without connections that gRPC keeps open on our side, in this process."""
    ours = {connection.laddr for connection in psutil.Process().net_connections("tcp")}
    pooled = [name.startswith(GRPCS_THREADS) for name in thread_names(process)]
    return Footprint(
        pooled.count(False),
        pooled.count(True),
        process.num_fds() - sum(at.raddr in ours for at in process.net_connections("tcp")),
        process.memory_info().rss,
    )


def thread_names(process: psutil.Process) -> Iterator[str]:
    """Yield the names of a process's threads, without those that end meanwhile."""
    for thread in process.threads():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text()


def assert_footprints(servers: Servers, before: list[Footprint]) -> None:
    """Threads and connections of calls that have ended go within some seconds."""
    after: list[Footprint] = []

    def are_as_before() -> bool:
        after[:] = servers.footprints()
        return all(map(is_as_before, after, before))

    try:
        await_that(are_as_before, "threads and files to go", pause_s=0.05)
    except TooSlow as late:
        raise AssertionError(f"{before} has become {after}") from late
    growth = [now.memory_bytes - then.memory_bytes for now, then in zip(after, before, strict=True)]
    assert max(growth) < MAX_GROWTH_BYTES, [size / 2**20 for size in growth]


def is_as_before(now: Footprint, then: Footprint) -> bool:
    """But for memory, of which allocators keep a little."""
    return (
        now.threads <= then.threads
        and now.pooled_threads <= then.pooled_threads + MAX_POOLED_THREADS
        and now.files <= then.files
    )


def tidy_up(servers: Servers) -> None:
    """Drop and unregister what hostile requests were well-formed enough to make."""
    status = servers.cluster.status()
    for shuffle in status.shuffles:
        ask(servers.metadata, MetadataAction.DROP_SHUFFLE, json.dumps({"id": shuffle.id}))
        ask(servers.data, DataAction.DROP_SHUFFLE, json.dumps({"id": shuffle.id}))
    for server in status.servers:
        if server.location != servers.data:
            # In the place of whatever incarnation it was registered as.
            body = json.dumps({"location": server.location, "incarnation": "tidy"})
            ask(servers.metadata, MetadataAction.REGISTER_SERVER, body)
            ask(servers.metadata, MetadataAction.UNREGISTER_SERVER, body)


def stats(servers: Servers) -> tuple[int, int, int]:
    answer = json.loads(ask(servers.data, DataAction.STATS, "{}"))
    return answer["shuffles"], answer["blocks"], answer["size_bytes"]


def ask(location: str, action: str, body: str | bytes) -> bytes:
    with flight.FlightClient(location) as client:
        return act(client, action, body)


def act(client: flight.FlightClient, action: str, body: str | bytes) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    options = flight.FlightCallOptions(timeout=hang_s())
    with from_flight("the server", action):
        (answer,) = client.do_action((action, body), options)
    return bytes(answer.body)


@dataclass(frozen=True)
class Put:
    """A DoPut: ``messages`` are batches with their ``app_metadata``."""

    descriptor: flight.FlightDescriptor
    schema: pa.Schema
    messages: list[tuple[pa.RecordBatch, bytes | None]]
    compression: str | None = None

    def send_to(self, location: str) -> None:
        with flight.FlightClient(location) as client:
            self.send(client)

    def send(self, client: flight.FlightClient) -> None:
        with from_flight("the server", "put"):
            written = pa.ipc.IpcWriteOptions(compression=self.compression)
            options = flight.FlightCallOptions(timeout=hang_s(), write_options=written)
            writer, reader = client.do_put(self.descriptor, self.schema, options)
            with closing(writer):
                for batch, metadata in self.messages:
                    if metadata is None:
                        writer.write_batch(batch)
                    else:
                        writer.write_with_metadata(batch, metadata)
                writer.done_writing()
                reader.read()
