"""A client that leaves a stream standing loses its connection, unless it calls over it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import MrflightError
from tests.support.clusters.cluster import StandingCluster, standing_cluster
from tests.support.suite.waiting import TooSlow, await_that

TIMEOUT_S = 1.0
ROWS = pa.record_batch({"k": list(range(100))})
LARGE = pa.record_batch({"k": ["x" * 1000] * 50_000})
"""More than fits into the buffers of a connection."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def connected_from(location: str) -> set[int]:
    """The ports from which this process is connected to a server."""
    at = int(location.rpartition(":")[2])
    return {
        each.laddr.port
        for each in psutil.Process().net_connections("tcp")
        if each.raddr and each.raddr.port == at and each.status == psutil.CONN_ESTABLISHED
    }


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
            began = time.monotonic()
            writer, reader = client.do_put(descriptor, ROWS.schema)

            def put() -> None:
                writer.write_batch(ROWS)
                assert reader.read() is None  # it waits for the server, which waits for rows
                writer.close()

            with pytest.raises(flight.FlightUnavailableError):
                put()
            assert time.monotonic() - began >= TIMEOUT_S, "it is given its time"
        shuffle.drop()


@contextmanager
def calls_in_time(calls: list[float]) -> Iterator[None]:
    """Tell a failure after calls that were too far apart from any other."""
    try:
        yield
    except (flight.FlightError, MrflightError):
        gaps = [after - before for before, after in pairwise([*calls, time.monotonic()])]
        if max(gaps) > TIMEOUT_S / 2:
            raise TooSlow(f"waited {max(gaps):.1f} s for a call") from None
        raise


@pytest.mark.slow
@pytest.mark.timing("whoever calls has to do so within the timeout")
def test_a_put_of_a_slow_map_is_left_alone(standing: StandingCluster) -> None:
    calls = [time.monotonic()]
    with (
        calls_in_time(calls),
        mrflight.connect(standing.metadata, transport="flight") as cluster,
    ):
        shuffle = cluster.create_shuffle("slow", 1)
        ((location,),) = shuffle.placement()
        with shuffle.writer(0, key=["k"]) as out:
            out.write(ROWS)
            out._flush()  # a stream is open now
            until = time.monotonic() + 4 * TIMEOUT_S
            client = out._connections.to(location)
            while calls[-1] < until:  # what the keepalive does every five seconds
                list(client.do_action(("pulse", b"{}")))
                calls.append(time.monotonic())
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
        ((location,),) = shuffle.placement()
        before = connected_from(location)
        with flight.FlightClient(location) as client:
            reader = client.do_get(endpoint.ticket)
            reader.read_chunk()
            (ours,) = connected_from(location) - before
            # A client that does nothing, which is what is tested.
            await_that(lambda: ours not in connected_from(location), "the server to end it")
            with pytest.raises(flight.FlightUnavailableError):
                reader.read_all()
        shuffle.drop()
