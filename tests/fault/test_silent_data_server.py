"""A data server hangs while it is read, and keeps its connections open."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import DeadlineExceededError
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.cluster import StandingCluster, standing_cluster
from tests.support.faults import faulty_run as faults
from tests.support.suite.messages import refused

SILENCE_S = 3.0
TIMEOUTS = Timeouts(idle_timeout_s=SILENCE_S)
"""By default a stream may be idle for an hour, which a test cannot wait for."""

ROWS, BATCHES = 100_000, 60
BUFFER_BYTES = 200 * 2**10
"""Some 25 MB in more than a hundred blocks, of which a stream has only a part under way."""


@pytest.fixture(params=[1, 2], ids=["single", "replicas"])
def replicas(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def running() -> Iterator[StandingCluster]:
    with standing_cluster(data_servers=2) as cluster:
        yield cluster
        for process in cluster.data_processes:
            process.kill()


def written(cluster: mrflight.Cluster, replicas: int) -> mrflight.Shuffle:
    """One partition, of which each location has all."""
    shuffle = cluster.create_shuffle("silent", partitions=1, replicas=replicas)
    with shuffle.writer(map_id=0, key=["n"], buffer_bytes=BUFFER_BYTES) as out:
        for number in range(BATCHES):
            out.write(pa.record_batch({"n": pa.array(range(number * ROWS, (number + 1) * ROWS))}))
    return shuffle


def stop_first(running: StandingCluster, shuffle: mrflight.Shuffle) -> None:
    """Stop the server that readers ask first."""
    port = int(shuffle.placement()[0][0].rpartition(":")[2])
    processes = [psutil.Process(process.pid) for process in running.data_processes]
    (server,) = (
        process
        for process in processes
        if port in {each.laddr.port for each in process.net_connections("tcp")}
    )
    faults.stop(server)


@pytest.mark.slow
@pytest.mark.parametrize("is_begun", [False, True], ids=["before", "while"])
def test_a_reader_waits_for_the_next_rows_no_longer_than_told(
    running: StandingCluster, replicas: int, is_begun: bool
) -> None:
    with mrflight.connect(running.metadata, TIMEOUTS) as cluster:
        shuffle = written(cluster, replicas)
        reader, batches = shuffle.reader(0), []
        if is_begun:
            batches.append(next(reader))
        stop_first(running, shuffle)
        if replicas == 1:
            with refused(DeadlineExceededError) as failed:
                batches += reader
            assert failed.value.location == shuffle.placement()[0][0]
        else:
            batches += reader
            numbers = pa.Table.from_batches(batches)["n"].to_pylist()
            assert numbers == list(range(ROWS * BATCHES))


@pytest.mark.slow
def test_a_reader_that_takes_its_time_is_not_silence(running: StandingCluster) -> None:
    with mrflight.connect(running.metadata, TIMEOUTS) as cluster:
        shuffle = written(cluster, replicas=1)
        rows = 0
        for number, batch in enumerate(shuffle.reader(0)):
            if number == 1:
                time.sleep(SILENCE_S + 1.0)  # what its user does with the rows
            rows += batch.num_rows
        assert rows == ROWS * BATCHES
