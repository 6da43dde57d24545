"""A standing cluster of one data server that may spill, and what it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

import mrflight
from mrflight.config.transport import Transport
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.clusters.cluster import Server, data_server, standing_cluster
from tests.support.suite.waiting import await_that


@dataclass
class Spilling:
    """A cluster of one data server, and the folder that it spills to."""

    cluster: mrflight.Cluster
    process: Server
    location: str
    root: Path

    def files(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.suffix == ".blocks"]

    def segments(self) -> list[int]:
        """Return the bytes of memory behind each segment that the server has open."""
        found = []
        for file in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if os.readlink(file).startswith("/memfd:mrflight"):
                    found.append(file.stat().st_blocks * 512)
        return found

    def await_only_the_proof(self) -> None:
        """Wait until it has no segment but the one that proves that its memory is shared.

        A thread of the server may hold what it has sent for a moment longer.
        """
        await_that(lambda: self.segments() == [4096], "the segments to go, but for the proof")

    def stats(self) -> ServerStats:
        connections = Connections()
        stats = call(connections, self.location, DataAction.STATS, Done(), ServerStats)
        connections.close()
        return stats


@contextmanager
def spilling(
    memory: int, root: Path, transport: Transport = "auto", *, is_warm: bool = True
) -> Iterator[Spilling]:
    """A cluster whose data server ends by itself and leaves nothing below ``root``.

    With ``is_warm`` it holds what the warm process has loaded, beside its own memory.
    """
    options = ("--memory", memory, "--spill-dir", root)
    with standing_cluster(data_servers=0) as standing:
        with (
            data_server(standing.metadata, *options, is_warm=is_warm) as (process, ready),
            mrflight.connect(standing.metadata, transport=transport) as cluster,
        ):
            yield Spilling(cluster, process, ready.split()[-1], root)
        assert process.returncode == 0
    assert list(root.iterdir()) == []


def plain_rows(cluster: mrflight.Cluster, name: str, partition: int) -> pa.Table:
    with flight.FlightClient(cluster.location) as metadata:
        path = flight.FlightDescriptor.for_path(name, str(partition))
        (endpoint,) = metadata.get_flight_info(path).endpoints
    with flight.FlightClient(endpoint.locations[0]) as data:
        return data.do_get(endpoint.ticket).read_all()
