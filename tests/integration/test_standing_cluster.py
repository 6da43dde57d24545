"""Server processes that stand by themselves: the API, and jobs side by side."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.errors import (
    NoDataServersError,
    ProtocolError,
    SchemaMismatchError,
    ShuffleExistsError,
    ShuffleNotFoundError,
)
from mrflight.frontend import cli
from tests.support.clusters.numbered_rows import batch, held
from tests.support.commands.driver import driver_command, write_job
from tests.support.queries.oracle import rows
from tests.support.suite.waiting import await_that

pytestmark = pytest.mark.runs_on_ray


def test_every_row_comes_back_once_in_the_partition_of_its_key(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("rows", partitions=20)
    for map_id in range(3):
        with shuffle.writer(map_id=map_id, attempt=0, key=["url"]) as out:
            out.write(batch(map_id * 2_000))
            out.write(batch(map_id * 2_000 + 1_000))
    seen: list[int] = []
    for partition in range(20):
        for piece in shuffle.reader(partition):
            ids = mrflight.partition_ids(piece, key=["url"], partitions=20)
            assert set(ids.to_pylist()) == {partition}
            seen += piece["n"].to_pylist()
    assert sorted(seen) == list(range(6_000))
    shuffle.drop()


def test_rows_of_a_partition_come_in_order_of_the_maps(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("ordered", partitions=1)
    for map_id in (2, 0, 1):
        with shuffle.writer(map_id=map_id, key=["url"]) as out:
            out.write(batch(map_id * 1_000))
    assert [n for piece in shuffle.reader(0) for n in piece["n"].to_pylist()] == list(range(3_000))
    shuffle.drop()


def test_views_runs_and_dictionaries_are_sent_plain(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("layouts", partitions=3)
    values = ["a", "b", None, "c"] * 50
    layouts = [
        pa.array(values, pa.string_view()),
        pa.array(values).dictionary_encode(),
        pa.array(values, pa.large_string()),
        pa.RunEndEncodedArray.from_arrays([50, 100, 200], pa.array(["a", None, "b"])),
    ]
    for map_id, column in enumerate(layouts):
        with shuffle.writer(map_id, key=["k"]) as out:
            out.write(pa.record_batch({"k": column}))
    seen = [k for p in range(3) for piece in shuffle.reader(p) for k in piece["k"].to_pylist()]
    expected = [k for column in layouts for k in column.to_pylist()]
    assert sorted(seen, key=repr) == sorted(expected, key=repr)
    assert shuffle.schema() == pa.schema([("k", pa.string())])
    shuffle.drop()


def test_a_shuffle_pickles_small_and_works_in_another_process(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("pickled", partitions=2)
    pickled = pickle.dumps(shuffle)
    assert len(pickled) < 500
    script = (
        "import pickle, sys, pyarrow as pa\n"
        "shuffle = pickle.loads(sys.stdin.buffer.read())\n"
        "with shuffle.writer(0, 0, key=['k']) as out:\n"
        "    out.write(pa.record_batch({'k': [1, 2, 3]}))\n"
    )
    subprocess.run([sys.executable, "-c", script], input=pickled, check=True)
    assert sorted(k for p in range(2) for b in shuffle.reader(p) for k in b["k"].to_pylist()) == [
        1,
        2,
        3,
    ]
    shuffle.drop()


def test_replicas_are_on_different_servers_and_hold_the_same(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("twice", partitions=6, replicas=2)
    with shuffle.writer(map_id=0, key=["url"]) as out:
        out.write(batch(0))
    _, partitions = shuffle.layout()
    assert all(len(set(info.locations)) == 2 for info in partitions)
    assert sum(held(shuffle)) == 2 * sum(info.size_bytes for info in partitions)
    shuffle.drop()


def test_errors_arrive_as_what_they_are(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("errors", partitions=2)
    with pytest.raises(ShuffleExistsError, match="'errors'"):
        cluster.create_shuffle("errors", partitions=2)
    with pytest.raises(NoDataServersError, match="4 are needed"):
        cluster.create_shuffle("many", partitions=2, replicas=4)
    with pytest.raises(ProtocolError, match="partitions"):
        cluster.create_shuffle("none", partitions=0)
    with pytest.raises(ProtocolError, match="not a shuffle id"):
        cluster.create_shuffle("../etc", partitions=1)
    with pytest.raises(ProtocolError, match="no 2"):
        list(shuffle.reader(2))
    with shuffle.writer(0, key=["url"]) as out:
        out.write(batch(0))
    other = shuffle.writer(1, key=["url"])
    other.write(batch(0).drop_columns(["n"]))
    with pytest.raises(SchemaMismatchError, match="'n' is missing"):
        other.commit()
    other.abort()
    shuffle.drop()
    with pytest.raises(ShuffleNotFoundError, match="'errors'"):
        shuffle.schema()
    with pytest.raises(ShuffleNotFoundError, match="'errors'"):
        shuffle.writer(2, key=["url"])


def job_folder(folder: Path, name: str, factor: int, metadata: str) -> Path:
    folder.mkdir()
    table = pa.table({"k": [i % 50 for i in range(5_000)], "v": [i * factor for i in range(5_000)]})
    pyarrow.csv.write_csv(table, folder / "in.csv")
    return write_job(
        folder,
        f"""
        [job]
        name = "{name}"
        [inputs.rows]
        path = "in.csv"
        [shuffle]
        partitions = 5
        [reduce]
        group_by = ["k"]
        aggregate = {{ total = "sum(v)" }}
        [output]
        table = "out"
        [cluster]
        metadata = "{metadata}"
        workers = 1
        """,
    )


@pytest.mark.slow
def test_two_jobs_at_once_do_not_see_each_other(cluster: mrflight.Cluster, tmp_path: Path) -> None:
    jobs = [
        job_folder(tmp_path / f"job{factor}", "same name", factor, cluster.location)
        for factor in (1, 10)
    ]
    drivers = [subprocess.Popen(driver_command(job), stdout=subprocess.PIPE) for job in jobs]
    for process in drivers:
        process.communicate()
        assert process.returncode == 0
    for job, factor in zip(jobs, (1, 10), strict=True):
        expected = [(k, factor * sum(range(k, 5_000, 50))) for k in range(50)]
        table = DeltaTable(job.parent / "out").to_pyarrow_table()
        assert rows(table) == sorted(expected, key=repr)


def test_status_shows_servers_and_shuffles(
    cluster: mrflight.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    # What is stored is known as of the last heartbeat, which may be before another test dropped it.
    await_that(
        lambda: not any(each.use.held_bytes for each in cluster.status().servers),
        "the servers to tell that they hold nothing",
    )
    shuffles = [
        cluster.create_shuffle("shown", partitions=3),
        cluster.create_shuffle("named", partitions=1, job="clicks of ünsere"),
    ]
    assert cli.main(["status", cluster.location]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("3 data servers\n")
    lines = [line.split() for line in shown.splitlines()]
    assert lines[1] == ["location", "partitions", "stored", "in", "memory", "of", "on", "disk"]
    assert [line[2:6] for line in lines[2:5]] == 3 * [["0", "B", "0", "B"]]
    assert lines[5:] == [
        ["2", "shuffles"],
        ["shuffle", "job", "partitions", "maps", "rows", "size"],
        ["shown", "-", "3", "0", "0", "0", "B"],
        ["named", "clicks", "of", "ünsere", "1", "0", "0", "0", "B"],
    ]
    assert cli.main(["status", cluster.location, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    status = json.loads(line)
    assert len(status["servers"]) == 3
    assert [each["job"] for each in status["shuffles"]] == ["", "clicks of ünsere"]
    for shuffle in shuffles:
        shuffle.drop()


def test_status_is_watched_until_it_is_interrupted(cluster: mrflight.Cluster) -> None:
    command = [sys.executable, "-m", "mrflight", "status", cluster.location]
    options = ["--watch", "--json", "--interval", "10 ms"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["shuffles"] == []
        shuffle = cluster.create_shuffle("new", partitions=1)
        while not json.loads(watch.stdout.readline())["shuffles"]:
            pass
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()
    assert watch.returncode == 130
    shuffle.drop()


@pytest.mark.parametrize("name", ["x" * 129, "a\nb", "\x1b[2J", "b\n"])
def test_a_name_that_would_control_a_terminal_is_refused(
    name: str, cluster: mrflight.Cluster
) -> None:
    with pytest.raises(ProtocolError, match="job"):
        cluster.create_shuffle("named", partitions=1, job=name)


def test_a_server_refuses_an_address_that_others_reach() -> None:
    command = [
        sys.executable,
        "-m",
        "mrflight.servers.metadata",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--advertise",
        "grpc+tcp://localhost:5005",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "other machines reach this address" in done.stderr
