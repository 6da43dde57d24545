"""Event logs of real servers: append, read, trim, drop, restart, and who may do that."""

from __future__ import annotations

import json
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import (
    DeadlineExceededError,
    EventLogExistsError,
    EventLogNotFoundError,
    EventLogWriteError,
    JobError,
    NoDataServersError,
    OffsetTrimmedError,
    ProducerSequenceError,
    ProtocolError,
    SchemaMismatchError,
)
from mrflight.shuffle.client.append_message import Message
from tests.support.clusters.cluster import standing_cluster
from tests.support.clusters.event_logs import (
    PATIENT,
    LogCluster,
    Producers,
    check_rows,
    held,
    log_cluster,
    numbers,
)
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that, hang_s


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with log_cluster(
        tmp_path_factory.mktemp("logs"), data_servers=2, heartbeat_timeout=PATIENT
    ) as started:
        yield started


@pytest.fixture
def cluster(servers: LogCluster) -> Iterator[mrflight.Cluster]:
    with servers.connect() as client:
        yield client


def test_an_append_says_where_its_rows_are(cluster: mrflight.Cluster) -> None:
    cluster.create_log("offsets")
    assert cluster.append("offsets", numbers(0, 1, 2, 3))[:3] == ("offsets", 0, 3)
    assert cluster.append("offsets", numbers(0, 4))[:3] == ("offsets", 3, 4)
    assert held(cluster, "offsets") == [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4)]
    (part,) = cluster.read_log("offsets", 1, 3)
    assert (part.start, part.stop, part.rows["n"].to_pylist()) == (1, 3, [2, 3])
    assert list(cluster.read_log("offsets", 4)) == []


@pytest.mark.slow
def test_64_producers_have_all_their_rows_in_order(
    servers: LogCluster, cluster: mrflight.Cluster
) -> None:
    cluster.create_log("many", replicas=2)
    producers = Producers(servers.location, "many", 64)
    try:
        await_that(lambda: producers.count() >= 2_000 or producers.errors, "2,000 rows")
    finally:
        producers.stop()
    assert not producers.errors
    check_rows(held(cluster, "many"), producers)


def test_a_flush_waits_until_the_futures_are_set(
    cluster: mrflight.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, released = threading.Event(), threading.Event()
    succeed = Message.succeed

    def late(message: Message, log: str, start: int) -> None:
        reached.set()
        assert released.wait(hang_s())
        succeed(message, log, start)

    monkeypatch.setattr(Message, "succeed", late)
    cluster.create_log("flushed")
    with cluster.appender("flushed") as out:
        future = out.append(numbers(1, 2, 3))
        assert reached.wait(hang_s())
        with pytest.raises(DeadlineExceededError):
            out.flush(0.01)
        released.set()
        out.flush(hang_s())
        assert future.done()


def test_batches_in_flight_are_stored_in_order(cluster: mrflight.Cluster) -> None:
    cluster.create_log("flight")
    with cluster.appender("flight") as out:
        futures = [out.append(numbers(n, *range(n % 7 + 1))) for n in range(500)]
        out.flush(hang_s())
        assert all(future.done() for future in futures)
    at = 0
    for n, future in enumerate(futures):
        assert future.result()[1:3] == (at, at + n % 7 + 1)
        at += n % 7 + 1
    assert [producer for _, producer, _ in held(cluster, "flight")] == [
        n for n in range(500) for _ in range(n % 7 + 1)
    ]


def test_a_named_producer_goes_on_where_it_was(cluster: mrflight.Cluster) -> None:
    cluster.create_log("named")
    for run in range(3):
        with cluster.appender("named", producer="till-1") as out:
            assert out.last_sequence == run * 10 - 1
            for n in range(out.last_sequence + 1, run * 10 + 10):
                assert out.append(numbers(0, n)).result().sequence == n
    assert [n for _, _, n in held(cluster, "named")] == list(range(30))


def test_two_programs_with_one_producer_lose_no_rows_that_were_answered(
    cluster: mrflight.Cluster,
) -> None:
    cluster.create_log("shared")
    with cluster.appender("shared", producer="till-1") as late:
        with cluster.appender("shared", producer="till-1") as first:
            first.append(numbers(0, 7)).result()
        with refused(ProducerSequenceError):
            late.append(numbers(0, 8)).result()
        with refused(JobError):
            late.append(numbers(0, 9))
    with cluster.appender("shared", producer="till-1") as out:
        out.append(numbers(0, 10 + out.last_sequence)).result()
    assert [n for _, _, n in held(cluster, "shared")] == [7, 10]


def test_a_plain_flight_client_appends_and_reads(
    servers: LogCluster, cluster: mrflight.Cluster
) -> None:
    owner = cluster.create_log("plain").owner_location
    with flight.FlightClient(owner) as client:
        descriptor = flight.FlightDescriptor.for_path("log", "plain")
        rows = numbers(0, 7, 8)
        writer, reader = client.do_put(descriptor, rows.schema)
        with writer:
            writer.write_batch(rows)
            assert json.loads(reader.read().to_pybytes()) == {"start": 0, "stop": 2}
            tag = json.dumps({"producer": "p", "sequence": 0}).encode()
            for _ in range(2):
                writer.write_with_metadata(rows, tag)
                assert json.loads(reader.read().to_pybytes()) == {"start": 2, "stop": 4}
        chunks = list(client.do_get(flight.Ticket(b"log/plain/1/100")))
        assert [json.loads(chunk.app_metadata.to_pybytes()) for chunk in chunks] == [{"start": 1}]
        assert chunks[0].data["n"].to_pylist() == [8, 7, 8]


def test_other_rows_than_the_first_are_refused(cluster: mrflight.Cluster) -> None:
    cluster.create_log("schema")
    assert cluster.append("schema", numbers(0, 1)).start == 0
    wrong = pa.record_batch({"producer": [0], "n": ["one"]})
    for _ in range(2):
        with refused(SchemaMismatchError):
            cluster.append("schema", wrong)
    with cluster.appender("schema") as out:
        futures = [out.append(wrong if n == 5 else numbers(0, n)) for n in range(2, 10)]
        out.flush(hang_s())
    assert isinstance(futures[3].exception(), SchemaMismatchError)
    assert [n for _, _, n in held(cluster, "schema")] == [1, 2, 3, 4, 6, 7, 8, 9]


def test_layouts_are_stored_plain(cluster: mrflight.Cluster) -> None:
    cluster.create_log("layouts")
    values = ["a", "b", None, "c"]
    for column in (pa.array(values).dictionary_encode(), pa.array(values, pa.string_view())):
        cluster.append("layouts", pa.record_batch({"k": column}))
    parts = [part.rows for part in cluster.read_log("layouts")]
    assert pa.Table.from_batches(parts)["k"].to_pylist() == values * 2
    assert parts[0].schema == pa.schema([("k", pa.string())])


@pytest.mark.slow
def test_rows_that_are_trimmed_are_gone(servers: LogCluster, cluster: mrflight.Cluster) -> None:
    cluster.create_log("trimmed", replicas=2)
    block = pa.record_batch({"b": [b"x" * 2**20] * 8})
    with cluster.appender("trimmed") as out:
        for _ in range(20):
            out.append(block)
    low = cluster.trim("trimmed", 150)
    assert 0 < low <= 150
    state = cluster.log_state("trimmed")
    assert (state.low, state.high) == (low, 160)
    with refused(OffsetTrimmedError):
        list(cluster.read_log("trimmed", low - 1))
    assert sum(part.rows.num_rows for part in cluster.read_log("trimmed", low)) == 160 - low
    for number in range(2):
        (folder,) = servers.log_dir(number).glob("trimmed*")
        assert min(int(each.stem) for each in folder.iterdir()) == low
    cluster.drop_log("trimmed")
    assert not [*servers.log_dir(0).glob("trimmed*"), *servers.log_dir(1).glob("trimmed*")]


def test_a_name_is_of_one_log(cluster: mrflight.Cluster) -> None:
    key = cluster.create_log("once").key
    with refused(EventLogExistsError):
        cluster.create_log("once")
    assert cluster.create_log("once", token=key.token).key == key
    cluster.append("once", numbers(0, 1))
    cluster.drop_log("once")
    for attempt in (cluster.drop_log, cluster.log_state, cluster.appender):
        with pytest.raises(EventLogNotFoundError, match="no event log 'once'"):
            attempt("once")
    cluster.create_log("once")
    assert cluster.append("once", numbers(0, 1)).start == 0
    with refused(EventLogNotFoundError):
        cluster.log_state(str(key))


@pytest.mark.parametrize("replicas", [3, 0, 9])
def test_too_many_replicas_or_none(replicas: int, cluster: mrflight.Cluster) -> None:
    with pytest.raises((NoDataServersError, ProtocolError)):
        cluster.create_log("too-many", replicas=replicas)


def test_servers_without_a_folder_take_no_logs() -> None:
    with (
        standing_cluster(data_servers=1) as started,
        mrflight.connect(started.metadata) as cluster,
        pytest.raises(NoDataServersError, match="--log-dir"),
    ):
        cluster.create_log("nowhere")


def test_a_server_that_is_killed_has_its_rows_when_it_is_back(tmp_path: Path) -> None:
    with (
        log_cluster(tmp_path, heartbeat_timeout=PATIENT) as servers,
        servers.connect() as cluster,
    ):
        cluster.create_log("kept")
        for n in range(50):
            cluster.append("kept", numbers(0, n))
        servers.kill_data(0)
        back = threading.Timer(0.5, servers.restart_data, [0])
        back.start()
        assert cluster.append("kept", numbers(0, 50)).start == 50  # it waits for the server
        back.join()
        assert [n for _, _, n in held(cluster, "kept")] == list(range(51))
        servers.restart_metadata()
        assert cluster.append("kept", numbers(0, 51)).start == 51
        assert [n for _, _, n in held(cluster, "kept")] == list(range(52))


def test_a_folder_that_was_named_by_the_secret_is_named_by_the_id(tmp_path: Path) -> None:
    with log_cluster(tmp_path, heartbeat_timeout=PATIENT) as servers, servers.connect() as cluster:
        made = cluster.create_log("named")
        cluster.append("named", numbers(0, 1, 2))
        servers.kill_data(0)
        folder = servers.log_dir(0) / str(made.log)
        folder.rename(folder.with_name(str(made.key)))
        folder.parent.chmod(0o755)
        servers.restart_data(0)
        assert held(cluster, "named") == [(0, 0, 1), (1, 0, 2)]
        assert [path.name for path in folder.parent.glob("named:*")] == [folder.name]
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)]
        assert modes == [0o700, 0o700]
        cluster.drop_log("named")
        assert not list(folder.parent.glob("named*"))


def test_a_full_disk_acknowledges_nothing_that_is_lost(tmp_path: Path) -> None:
    with (
        log_cluster(tmp_path, heartbeat_timeout=PATIENT) as servers,
        servers.connect() as patient,
        servers.connect(reconnect_s=1.0) as cluster,
    ):
        cluster.create_log("full")
        block = pa.record_batch({"b": [b"x" * 1000] * 10})
        assert patient.append("full", block).stop == 10
        limit, hard = 50_000, resource.RLIM_INFINITY
        resource.prlimit(servers.data[0].pid, resource.RLIMIT_FSIZE, (limit, hard))
        stored = 10
        with cluster.appender("full") as out:
            futures = [out.append(block) for _ in range(20)]
            out.flush(hang_s())
        assert isinstance(futures[-1].exception(), EventLogWriteError)
        assert "make room on its disk" in str(futures[-1].exception())
        stored += sum(10 for future in futures if future.exception() is None)
        assert cluster.log_state("full").high == stored
        resource.prlimit(servers.data[0].pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert patient.append("full", block).start == stored
        servers.kill_data(0)
        servers.restart_data(0)
        assert sum(part.rows.num_rows for part in patient.read_log("full")) == stored + 10


def test_a_replica_with_a_full_disk_is_replaced(tmp_path: Path) -> None:
    with (
        log_cluster(tmp_path, data_servers=3, heartbeat_timeout=PATIENT) as servers,
        servers.connect() as cluster,
    ):
        cluster.create_log("full", replicas=2)
        block = pa.record_batch({"b": [b"x" * 1000] * 10})
        assert cluster.append("full", block).start == 0
        owner = servers.owner("full")
        (replica,) = {*servers.members("full")} - {owner}
        limit = (30_000, resource.RLIM_INFINITY)
        resource.prlimit(servers.data[replica].pid, resource.RLIMIT_FSIZE, limit)
        for n in range(1, 10):
            assert cluster.append("full", block).start == n * 10
        assert {*servers.members("full")} == {0, 1, 2} - {replica}
        assert sum(part.rows.num_rows for part in cluster.read_log("full")) == 100
