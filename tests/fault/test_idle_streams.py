"""A client that leaves a stream standing loses its connection, unless it calls over it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from tests.support.clusters.cluster import StandingCluster, standing_cluster

TIMEOUT_S = 1.0
ROWS = pa.record_batch({"k": list(range(100))})
LARGE = pa.record_batch({"k": ["x" * 1000] * 50_000})
"""More than fits into the buffers of a connection."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture(scope="module")
def standing() -> Iterator[StandingCluster]:
    with standing_cluster(1, options=["--idle-timeout", f"{TIMEOUT_S} s"]) as running:
        yield running


def test_a_put_that_stands_still_is_ended(standing: StandingCluster) -> None:
    with mrflight.connect(standing.metadata) as cluster:
        shuffle = cluster.create_shuffle("put", 1)
        ((location,),) = shuffle.placement()
        with flight.FlightClient(location) as client:
            descriptor = flight.FlightDescriptor.for_path("put", "0", "0", "0")
            writer, reader = client.do_put(descriptor, ROWS.schema)
            writer.write_batch(ROWS)
            began = time.monotonic()
            assert reader.read() is None  # it waits for the server, which waits for rows
            with pytest.raises(flight.FlightUnavailableError):
                writer.close()
            assert time.monotonic() - began > TIMEOUT_S / 2, "it is given its time"
        shuffle.drop()


@pytest.mark.slow
def test_a_put_of_a_slow_map_is_left_alone(standing: StandingCluster) -> None:
    with mrflight.connect(standing.metadata, transport="flight") as cluster:
        shuffle = cluster.create_shuffle("slow", 1)
        ((location,),) = shuffle.placement()
        with shuffle.writer(0, key=["k"]) as out:
            out.write(ROWS)
            out._flush()  # a stream is open now
            until = time.monotonic() + 4 * TIMEOUT_S
            client = out._connections.to(location)
            while time.monotonic() < until:  # what the keepalive does every five seconds
                list(client.do_action(("pulse", b"{}")))
        assert sum(batch.num_rows for batch in shuffle.reader(0)) == ROWS.num_rows
        shuffle.drop()


@pytest.mark.slow
def test_a_get_that_nobody_reads_is_ended(standing: StandingCluster) -> None:
    with mrflight.connect(standing.metadata) as cluster:
        shuffle = cluster.create_shuffle("get", 1)
        with shuffle.writer(0, key=["k"]) as out:
            out.write(LARGE)
        with flight.FlightClient(standing.metadata) as metadata:
            info = metadata.get_flight_info(flight.FlightDescriptor.for_path("get"))
        (endpoint,) = info.endpoints
        with flight.FlightClient(endpoint.locations[0]) as client:
            reader = client.do_get(endpoint.ticket)
            reader.read_chunk()
            time.sleep(4 * TIMEOUT_S)  # a client that does nothing, which is what is tested
            with pytest.raises(flight.FlightUnavailableError):
                reader.read_all()
        shuffle.drop()
