"""A data server that gets SIGTERM hands its partitions to others and ends; no task runs again."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.errors import PlacementChangedError
from tests.support.clusters.cluster import StandingCluster, standing_cluster
from tests.support.commands.driver import driver_command, write_job
from tests.support.suite.waiting import await_end, await_that

pytestmark = pytest.mark.runs_on_ray

PARTITIONS = 12


def batch(map_id: int) -> pa.RecordBatch:
    numbers = range(map_id * 1_000, (map_id + 1) * 1_000)
    return pa.record_batch({"k": [f"k{i}" for i in numbers], "n": pa.array(numbers)})


def write(shuffle: mrflight.Shuffle, map_id: int, attempt: int = 0) -> None:
    with shuffle.writer(map_id, attempt, key=["k"]) as out:
        out.write(batch(map_id))


def numbers(shuffle: mrflight.Shuffle) -> Counter[int]:
    return Counter(
        number
        for partition in range(PARTITIONS)
        for piece in shuffle.reader(partition)
        for number in piece["n"].to_pylist()
    )


def drain(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return await_end(process, "the data server")


@pytest.mark.slow_but("1")
@pytest.mark.parametrize("replicas", [1, 2])
def test_committed_rows_are_moved(replicas: int) -> None:
    with standing_cluster(3) as running, mrflight.connect(running.metadata) as client:
        shuffle = client.create_shuffle("moved", PARTITIONS, replicas)
        for map_id in range(5):
            write(shuffle, map_id)
        for process in running.data_processes[:2]:
            assert drain(process) == 0
            assert shuffle.health().lost_maps == []
            assert numbers(shuffle) == Counter(range(5_000))
        (server,) = client.status().servers
        assert server.partitions == PARTITIONS
        write(shuffle, 5)
        assert numbers(shuffle) == Counter(range(6_000))
        shuffle.drop()


def test_an_attempt_that_wrote_to_it_is_made_again() -> None:
    with standing_cluster(3) as running, mrflight.connect(running.metadata) as client:
        shuffle = client.create_shuffle("open", PARTITIONS)
        write(shuffle, 0)
        writer = shuffle.writer(1, 0, key=["k"], buffer_bytes=1)
        writer.write(batch(1))  # goes to all servers at once
        version = shuffle.health().version
        running.data_processes[0].send_signal(signal.SIGTERM)
        await_that(
            lambda: shuffle.health().version > version,
            "its partitions to move",
            beside=running.data_processes[0],
        )
        with pytest.raises(PlacementChangedError, match="write it again"):
            writer.commit()
        writer.abort()
        assert await_end(running.data_processes[0], "the data server") == 0
        write(shuffle, 1, attempt=1)
        assert numbers(shuffle) == Counter(range(2_000))
        shuffle.drop()


def test_the_last_server_waits_until_its_rows_are_dropped() -> None:
    with standing_cluster(1) as running, mrflight.connect(running.metadata) as client:
        shuffle = client.create_shuffle("last", PARTITIONS)
        write(shuffle, 0)
        (process,) = running.data_processes
        process.send_signal(signal.SIGTERM)
        for _ in range(3):
            assert numbers(shuffle) == Counter(range(1_000))
        assert process.poll() is None
        shuffle.drop()
        assert await_end(process, "the data server") == 0


JOB = """
[job]
name = "drained"
[inputs.rows]
path = "in-*.csv"
map = "draining:MAP"
key = ["k"]
[shuffle]
partitions = 12
[reduce]
REDUCE
[output]
table = "out"
[cluster]
workers = 2
"""

DRAINING = """
import os
import signal
from pathlib import Path


def as_it_is(batch):
    return batch


def stop_a_server(rows):
    '''Once, after three others have been called: tell a data server to stop.'''
    calls = Path(__file__).parent / "calls"
    with calls.open("a") as file:
        file.write("x")
    if calls.stat().st_size >= 4:
        try:
            os.mkdir(Path(__file__).parent / "told")
        except FileExistsError:
            return rows
        victim = Path(__file__).parent / "victim"
        os.kill(int(victim.read_text()), signal.SIGTERM)
    return rows
"""


@pytest.mark.slow_but("map-local")
@pytest.mark.also_on_ray("map")
@pytest.mark.parametrize("stage", ["map", "reduce"])
def test_a_job_goes_on(stage: str, tmp_path: Path) -> None:
    for number in range(8):
        lines = "\n".join(f"k{i}" for i in range(number * 2_000, (number + 1) * 2_000))
        (tmp_path / f"in-{number}.csv").write_text(f"k\n{lines}\n")
    (tmp_path / "draining.py").write_text(DRAINING)
    text = JOB.replace("MAP", "stop_a_server" if stage == "map" else "as_it_is")
    reduce = 'function = "draining:stop_a_server"' if stage == "reduce" else ""
    job = write_job(tmp_path, text.replace("REDUCE", reduce))
    with standing_cluster(3) as running:
        done = run_on(running, job)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "told").exists()
        assert await_end(running.data_processes[0], "the data server") == 0
        with mrflight.connect(running.metadata) as client:
            assert client.status().shuffles == []
            assert len(client.status().servers) == 2
    table = DeltaTable(tmp_path / "out")
    read = pa.concat_tables(pq.read_table(path) for path in table.file_uris())
    assert Counter(read["k"].to_pylist()) == Counter(f"k{i}" for i in range(16_000))
    assert table.version() == 0


def run_on(running: StandingCluster, job: Path) -> subprocess.CompletedProcess[str]:
    (job.parent / "victim").write_text(str(running.data_processes[0].pid))
    return subprocess.run(
        [*driver_command(job), "--set", f"cluster.metadata={running.metadata}"],
        capture_output=True,
        text=True,
        check=False,
    )
