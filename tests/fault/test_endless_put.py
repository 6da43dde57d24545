"""A data server is stopped while a client holds a put open."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import NoDataServersError
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.clusters.cluster import standing_cluster
from tests.support.commands.running_command import running_command
from tests.support.suite.waiting import await_that, hang_s

MIB = 2**20
BATCH = pa.record_batch({"n": pa.array(range(MIB // 8), pa.int64())})
BATCHES = 16


@contextmanager
def data_server(metadata: str, spill_dir: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A data server with little memory; ``stdout`` is read up to its ready line."""
    command = [sys.executable, "-m", "mrflight.servers.data", "--metadata", metadata]
    command += ["--memory", "4 MiB", "--spill-dir", str(spill_dir), *options]
    with running_command(command) as process:
        yield process


def location_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().split()[-1]


@contextmanager
def open_put(
    cluster: mrflight.Cluster, location: str, spill_dir: Path
) -> Iterator[flight.FlightStreamWriter]:
    """A plain client's put, of which the server has stored all there is, and spilled most."""
    cluster.create_shuffle("put", partitions=1)
    with flight.FlightClient(location) as client:
        descriptor = flight.FlightDescriptor.for_path("put/0", "0", "0")
        writer, _ = client.do_put(descriptor, BATCH.schema)
        for _ in range(BATCHES):
            writer.write_batch(BATCH)
        await_that(lambda: stored_blocks(location) >= BATCHES, "all blocks to be stored")
        assert any(spill_dir.rglob("*.blocks"))
        yield writer


def stored_blocks(location: str) -> int:
    connections = Connections()
    stats = call(connections, location, DataAction.STATS, Done(), ServerStats)
    connections.close()
    return stats.blocks


def tell_to_stop(process: subprocess.Popen[str], cluster: mrflight.Cluster) -> None:
    """Returns when the server takes no new partitions, which is the first that it does."""
    process.terminate()

    def takes_none() -> bool:
        try:
            cluster.create_shuffle("none", partitions=1).drop()
        except NoDataServersError:
            return True
        return False

    await_that(takes_none, "the server to take no new partitions")


@pytest.mark.slow
def test_it_is_cut_off_after_the_drain_timeout_and_leaves_no_files(tmp_path: Path) -> None:
    with (
        standing_cluster(data_servers=0) as standing,
        mrflight.connect(standing.metadata) as cluster,
        data_server(standing.metadata, tmp_path, "--drain-timeout", "500 ms") as process,
        open_put(cluster, location_of(process), tmp_path) as put,
    ):
        began_s = time.monotonic()
        process.terminate()
        assert process.wait(hang_s()) == 1
        assert time.monotonic() - began_s >= 0.5
        assert list(tmp_path.iterdir()) == []
        assert process.stderr is not None
        assert "after 0.5 s (--drain-timeout) there are still calls" in process.stderr.read()
        with pytest.raises(flight.FlightUnavailableError):
            put.close()


@pytest.mark.slow
def test_one_that_ends_in_time_is_answered(tmp_path: Path) -> None:
    with (
        standing_cluster(data_servers=0) as standing,
        mrflight.connect(standing.metadata) as cluster,
        data_server(standing.metadata, tmp_path) as process,
        open_put(cluster, location_of(process), tmp_path) as put,
    ):
        tell_to_stop(process, cluster)
        assert process.poll() is None
        put.close()
        cluster.open_shuffle("put").drop()  # or the server would wait for one to move it to
        assert process.wait(hang_s()) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow_but("metadata")
@pytest.mark.parametrize("server", ["data", "metadata"])
def test_a_drain_timeout_that_is_no_time_is_refused(server: str) -> None:
    command = [sys.executable, "-m", f"mrflight.servers.{server}", "--drain-timeout", "soon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=hang_s())
    assert done.returncode == 2
    assert "--drain-timeout: 'soon' is not a time such as '10 min'" in done.stderr
