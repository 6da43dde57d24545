"""Server processes that stand by themselves: the thesis's exchange, the API, jobs side by side."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from deltalake import DeltaTable
from pyarrow import flight

import mrflight
from mrflight.errors import (
    AttemptLostError,
    NoDataServersError,
    ProtocolError,
    SchemaMismatchError,
    ShuffleExistsError,
    ShuffleNotFoundError,
)
from tests.support.cluster import StandingCluster, standing_cluster
from tests.support.driver import driver_command, write_job
from tests.support.oracle import rows


@pytest.fixture(scope="module")
def running() -> Iterator[StandingCluster]:
    with standing_cluster(data_servers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: StandingCluster) -> Iterator[mrflight.Cluster]:
    """A client of the cluster, which must hold nothing before and after each test."""
    with mrflight.connect(running.metadata) as client:
        assert client.status().shuffles == []
        yield client
        status = client.status()
        assert status.shuffles == []
        assert [server.partitions for server in status.servers] == [0, 0, 0]


def batch(start: int, rows: int = 1_000) -> pa.RecordBatch:
    numbers = range(start, start + rows)
    return pa.record_batch({"url": [f"s{i}.com" for i in numbers], "n": pa.array(numbers)})


def held(running: StandingCluster, shuffle: mrflight.Shuffle) -> list[int]:
    """How many bytes each data server stores."""
    locations = {at for info in shuffle.layout()[1] for at in info.locations}
    sizes = []
    for location in sorted(locations):
        with flight.FlightClient(location) as client:
            (answer,) = client.do_action(("stats", b"{}"))
            sizes.append(json.loads(answer.body.to_pybytes())["size_bytes"])
    return sizes


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


def test_only_the_first_committed_attempt_is_read(
    cluster: mrflight.Cluster, running: StandingCluster
) -> None:
    shuffle = cluster.create_shuffle("attempts", partitions=4)
    with shuffle.writer(map_id=0, attempt=1, key=["url"]) as out:
        out.write(batch(0))
    before = held(running, shuffle)
    late = shuffle.writer(map_id=0, attempt=0, key=["url"])
    late.write(batch(5_000))
    with pytest.raises(AttemptLostError, match="attempt 1 has been committed before this"):
        late.commit()
    assert held(running, shuffle) == before
    seen = [n for p in range(4) for piece in shuffle.reader(p) for n in piece["n"].to_pylist()]
    assert sorted(seen) == list(range(1_000))
    shuffle.drop()


def test_a_second_writer_of_a_committed_attempt_changes_nothing(
    cluster: mrflight.Cluster, running: StandingCluster
) -> None:
    shuffle = cluster.create_shuffle("again", partitions=4)
    with shuffle.writer(map_id=0, key=["url"]) as out:
        out.write(batch(0))
    before = held(running, shuffle)
    again = shuffle.writer(map_id=0, key=["url"])
    again.write(batch(0))
    with pytest.raises(AttemptLostError):
        again.commit()
    raising = shuffle.writer(map_id=0, key=["url"])
    raising.write(batch(0))
    raising.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert held(running, shuffle) == before
    seen = [n for p in range(4) for piece in shuffle.reader(p) for n in piece["n"].to_pylist()]
    assert sorted(seen) == list(range(1_000))
    shuffle.drop()


def test_what_a_dead_worker_put_is_forgotten_and_the_winner_is_kept(
    running: StandingCluster, cluster: mrflight.Cluster
) -> None:
    shuffle = cluster.create_shuffle("twins", partitions=1)
    (info,) = shuffle.layout()[1]
    descriptor = flight.FlightDescriptor.for_path("twins", "0", "5", "1")
    with flight.FlightClient(info.locations[0]) as client:  # attempt 1, which nobody commits
        writer, _ = client.do_put(descriptor, batch(0).schema)
        with writer:
            writer.write_batch(batch(0))
    loser = sum(held(running, shuffle))
    assert loser > 0
    shuffle.discard_losers(5, attempts=2, writer_id="")
    assert sum(held(running, shuffle)) == loser  # it may still win
    with shuffle.writer(5, 0, key=["url"], writer_id="w") as out:
        out.write(batch(7))
    both = sum(held(running, shuffle))
    shuffle.discard_losers(5, attempts=2, writer_id="w")
    assert sum(held(running, shuffle)) == both  # of attempts 0 and 1 of this writer, 0 has won
    shuffle.discard_losers(5, attempts=2, writer_id="")
    assert sum(held(running, shuffle)) == both - loser
    assert pa.Table.from_batches(shuffle.reader(0)).to_batches() == [batch(7)]
    shuffle.drop()


def test_a_name_that_is_used_again_does_not_bring_old_rows_back(cluster: mrflight.Cluster) -> None:
    for word in ("old", "new"):
        shuffle = cluster.create_shuffle("name", partitions=1)
        with shuffle.writer(map_id=0, key=["k"]) as out:
            out.write(pa.record_batch({"k": [word]}))
        assert [k for piece in shuffle.reader(0) for k in piece["k"].to_pylist()] == [word]
        if word == "old":  # dropped at the metadata server, and the data server is not told
            with flight.FlightClient(cluster.location) as metadata:
                list(metadata.do_action(("drop_shuffle", b'{"id": "name"}')))
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


def test_an_attempt_that_raises_leaves_nothing(
    cluster: mrflight.Cluster, running: StandingCluster
) -> None:
    shuffle = cluster.create_shuffle("raises", partitions=4)
    out = shuffle.writer(map_id=0, key=["url"])
    for start in range(0, 1_000_000, 50_000):  # more blocks than may wait to be sent
        out.write(batch(start, 50_000))
    assert sum(held(running, shuffle)) > 0
    out.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert held(running, shuffle) == [0, 0, 0]
    assert list(shuffle.reader(0)) == []
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


def test_replicas_are_on_different_servers_and_hold_the_same(
    cluster: mrflight.Cluster, running: StandingCluster
) -> None:
    shuffle = cluster.create_shuffle("twice", partitions=6, replicas=2)
    with shuffle.writer(map_id=0, key=["url"]) as out:
        out.write(batch(0))
    _, partitions = shuffle.layout()
    assert all(len(set(info.locations)) == 2 for info in partitions)
    assert sum(held(running, shuffle)) == 2 * sum(info.size_bytes for info in partitions)
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


def test_who_wrote_to_a_dropped_shuffle_commits_nothing_into_the_next_one_of_its_name(
    cluster: mrflight.Cluster,
) -> None:
    old = cluster.create_shuffle("again", partitions=2)
    late = old.writer(map_id=0, attempt=0, key=["url"])
    late.write(batch(0))
    old.drop()
    new = cluster.create_shuffle("again", partitions=2)
    for ask in (
        late.commit,
        old.health,
        old.placement,
        old.drop,
        lambda: old.writer(1, 0, ["url"]),
    ):
        with pytest.raises(ShuffleNotFoundError, match="another one has its name now"):
            ask()
    late.abort()
    with cluster.open_shuffle("again").writer(map_id=0, attempt=0, key=["url"]) as out:
        out.write(batch(5_000))
    seen = [n for p in range(2) for piece in new.reader(p) for n in piece["n"].to_pylist()]
    assert sorted(seen) == list(range(5_000, 6_000))
    new.drop()


def test_a_dropped_shuffle_frees_all_and_refuses_late_blocks(
    cluster: mrflight.Cluster, running: StandingCluster
) -> None:
    shuffle = cluster.create_shuffle("dropped", partitions=3)
    with shuffle.writer(0, key=["url"]) as out:
        out.write(batch(0))
    _, partitions = shuffle.layout()
    late = shuffle.writer(1, key=["url"])
    late.write(batch(0))
    shuffle.drop()
    with pytest.raises(ShuffleNotFoundError, match="'dropped'"):
        late.commit()
    for location in {at for info in partitions for at in info.locations}:
        with flight.FlightClient(location) as client:
            (answer,) = client.do_action(("stats", b"{}"))
            assert json.loads(answer.body.to_pybytes()) == {
                "shuffles": 0,
                "blocks": 0,
                "size_bytes": 0,
            }


def test_a_plain_flight_client_speaks_the_thesis_exchange(cluster: mrflight.Cluster) -> None:
    """Listings 3.1 and 3.2: put_shuffle, DoPut per partition, flight-info, DoGet."""
    with flight.FlightClient(cluster.location) as metadata:
        request = json.dumps({"id": "thesis", "reducers": 6}).encode()
        (answer,) = metadata.do_action(("put_shuffle", request))
        targets = json.loads(answer.body.to_pybytes())["partitions"]
        assert [target["descriptor"] for target in targets] == [f"thesis/{p}" for p in range(6)]
        per_server = {target["location"] for target in targets}
        assert len(per_server) == 3
        sizes = []
        for partition, target in enumerate(targets):
            with flight.FlightClient(target["location"]) as data:
                descriptor = flight.FlightDescriptor.for_path(target["descriptor"], "7", "0")
                rows = batch(partition * 10, 10)
                writer, _ = data.do_put(descriptor, rows.schema)
                writer.write_batch(rows)
                writer.done_writing()
                writer.close()
            sizes.append(10)
        schema = list(batch(0).schema.serialize().to_pybytes())
        import base64

        commit = {
            "id": "thesis",
            "map_id": 7,
            "attempt": 0,
            "schema": base64.b64encode(bytes(schema)).decode(),
            "rows": sizes,
            "size_bytes": [1] * 6,
        }
        (answer,) = metadata.do_action(("commit_map", json.dumps(commit).encode()))
        assert json.loads(answer.body.to_pybytes()) == {"attempt": 0, "writer": ""}
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("thesis"))
    assert info.total_records == 60
    assert info.schema == batch(0).schema
    for partition, endpoint in enumerate(info.endpoints):
        assert endpoint.ticket.ticket.startswith(f"thesis/{partition}".encode())
        with flight.FlightClient(endpoint.locations[0]) as data:
            table = data.do_get(endpoint.ticket).read_all()
        assert table["n"].to_pylist() == list(range(partition * 10, partition * 10 + 10))
    cluster.open_shuffle("thesis").drop()


def test_our_writers_rows_are_read_by_a_plain_client(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("plain", partitions=2)
    with shuffle.writer(0, key=["url"], compression="lz4") as out:
        out.write(batch(0))
    seen: list[int] = []
    with flight.FlightClient(cluster.location) as metadata:
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("plain"))
    for endpoint in info.endpoints:
        with flight.FlightClient(endpoint.locations[0]) as data:
            seen += data.do_get(endpoint.ticket).read_all()["n"].to_pylist()
    assert sorted(seen) == list(range(1_000))
    shuffle.drop()


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


def test_two_jobs_at_once_do_not_see_each_other(cluster: mrflight.Cluster, tmp_path: Path) -> None:
    jobs = [
        job_folder(tmp_path / f"job{factor}", "same name", factor, cluster.location)
        for factor in (1, 10)
    ]
    drivers = [subprocess.Popen(driver_command(job), stdout=subprocess.PIPE) for job in jobs]
    for process in drivers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    for job, factor in zip(jobs, (1, 10), strict=True):
        expected = [(k, factor * sum(range(k, 5_000, 50))) for k in range(50)]
        table = DeltaTable(job.parent / "out").to_pyarrow_table()
        assert rows(table) == sorted(expected, key=repr)


def test_status_shows_servers_and_shuffles(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("shown", partitions=3)
    command = [sys.executable, "-m", "mrflight.cli", "status", cluster.location]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "3 data servers" in shown
    assert "shown: 3 partitions, 0 maps" in shown
    shuffle.drop()


def test_a_server_refuses_an_address_that_others_reach() -> None:
    command = [
        sys.executable,
        "-m",
        "mrflight.servers.metadata",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "loopback" in done.stderr
