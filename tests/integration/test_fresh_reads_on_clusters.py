"""Tails on a standing cluster are read by whoever its servers know, and are fetched again."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mrflight
from mrflight.config.identity import Endpoint
from mrflight.errors import AccessDeniedError, JobFileError, MrflightError, TailError
from mrflight.security.job_tokens import write_private
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.wire.tail_protocol import OpenTail, TailPut, TailRange, TailRead
from tests.services.kafka import Kafka
from tests.services.reserved_port import reserved_port
from tests.support.clusters.cluster import standing_cluster
from tests.support.clusters.event_logs import PATIENT, LogCluster, log_cluster, numbers
from tests.support.clusters.secured_cluster import Secured, secured_cluster
from tests.support.streams.fresh_reads import (
    Producers,
    check_prefixes,
    fresh,
    fresh_to,
    live_stream,
    reading,
    tail_file,
)
from tests.support.streams.ingest_job import Stream, ended, ingest, numbered
from tests.support.streams.repeated_reads import await_reads
from tests.support.suite.waiting import await_that

NEVER = "1 h"
REFUSED = "which has to know who reads|may want a certificate of its clients"
UNSAID = "has to know who reads: its connections are encrypted"


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(3), tmp_path)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LogCluster]:
    with log_cluster(tmp_path, data_servers=2, heartbeat_timeout=PATIENT) as started:
        yield started


@pytest.fixture(scope="module", params=["certificates", "tokens"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("secured"), request.param) as started:
        yield started


def place(stream: Stream) -> dict[str, str]:
    found: dict[str, str] = json.loads(tail_file(stream).read_text())
    return found


def test_a_data_server_with_the_tail_is_killed(stream: Stream, tmp_path: Path) -> None:
    with (
        log_cluster(tmp_path, data_servers=2) as servers,
        live_stream(stream, rest=f'metadata = "{servers.location}"'),
        reading(stream) as readers,
    ):
        sent = Producers(stream, 4)
        for _ in range(20):
            sent.send(20)
        check_prefixes(fresh_to(sent), sent.sent)
        held = place(stream)
        assert held["cluster"] == servers.location
        assert "identity" not in held, "readers say themselves who they are"
        servers.kill_data(servers.locations.index(held["location"]))
        sent.send(20)
        check_prefixes(fresh_to(sent), sent.sent)
        assert place(stream)["location"] != held["location"]
        await_reads(readers, 2)
        await_that(lambda: len(stream.rows()) == sum(sent.sent.values()), "the commit of all rows")
    check_prefixes(fresh(stream), sent.sent)


def test_a_stream_that_was_killed_is_told_once_its_tail_is_gone(
    stream: Stream, servers: LogCluster
) -> None:
    rest = f'metadata = "{servers.location}"'
    with live_stream(stream, NEVER, ends=-signal.SIGKILL, rest=rest) as process:
        stream.produce(numbered(1, range(5)), partition=1)
        assert len(fresh(stream, at_least={f"{stream.topic}/1": 5})) == 15
        process.kill()
    assert len(fresh(stream)) == 15, "the tail outlives its stream for a while"
    with TailClient(Endpoint(place(stream)["location"])) as client:
        client.drop(place(stream)["tail"])
    with pytest.raises(TailError, match="start it again, or read the table without fresh"):
        fresh(stream, wait=0.5)


def test_a_stream_whose_tail_another_holds_goes_on_under_another_name(
    stream: Stream, servers: LogCluster
) -> None:
    with live_stream(stream, NEVER, rest=f'metadata = "{servers.location}"'):
        held = place(stream)
        server = Endpoint(held["location"])

        def take() -> bool:
            """Open the tail as another one; the stream may come first."""
            with TailClient(server) as to_drop, TailClient(server) as client:
                to_drop.drop(held["tail"])
                try:
                    client.open(OpenTail(held["tail"], 1, {}))
                except AccessDeniedError:
                    return False
                return True

        await_that(take, "another tail under the name")
        await_that(lambda: held["tail"] not in tail_file(stream).read_text(), "another name")
        stream.produce(numbered(1, range(5)), partition=1)
        assert len(fresh(stream, at_least={f"{stream.topic}/1": 5})) == 15


def test_jobs_read_a_tail_on_their_own_cluster(stream: Stream, servers: LogCluster) -> None:
    rest = f'metadata = "{servers.location}"'
    with live_stream(stream, NEVER, rest=rest):
        stream.produce(numbered(1, range(500)), partition=1)
        fresh(stream, at_least={f"{stream.topic}/1": 500})
        job = stream.folder / "counts.toml"
        for cluster in ("", rest):
            job.write_text(
                '[job]\nname = "counts"\n[inputs.events]\npath = "out/events"\nfresh = true\n'
                f"[cluster]\nworkers = 2\n{cluster}\n"
                '[reduce]\ngroup_by = ["producer"]\naggregate = { n = "count(*)" }\n'
                '[output]\ntable = "out/counts"\nmode = "overwrite"\n'
            )
            mrflight.run(job, progress=False)
            counts = mrflight.read_table(stream.folder / "out" / "counts").to_pylist()
            assert {row["producer"]: row["n"] for row in counts} == {0: 10, 1: 500}


def test_readers_go_to_the_address_that_a_server_announces(stream: Stream) -> None:
    with (
        reserved_port() as port,
        standing_cluster(
            1, options=("--port", str(port), "--advertise", f"grpc+tcp://localhost:{port}")
        ) as servers,
        live_stream(stream, NEVER, rest=f'metadata = "{servers.metadata}"'),
    ):
        assert place(stream)["location"] == f"grpc+tcp://localhost:{port}"
        stream.produce(numbered(1, range(5)), partition=1)
        assert len(fresh(stream, at_least={f"{stream.topic}/1": 5})) == 15


@pytest.mark.slow
def test_only_known_callers_read_a_tail(stream: Stream, secured: Secured) -> None:
    rest = secured.section("job")
    with live_stream(stream, NEVER, rest=rest):
        stream.produce(numbered(1, range(5)), partition=1)
        at_least = {f"{stream.topic}/1": 5}
        for caller in ("reader", "job"):
            with secured.connect(caller) as cluster:
                assert len(fresh(stream, at_least=at_least, cluster=cluster)) == 15
        for caller in ("nobody", "stranger"):
            with secured.connect(caller) as cluster, pytest.raises(MrflightError, match=REFUSED):
                fresh(stream, cluster=cluster, wait=0.5)
        with pytest.raises(JobFileError, match=UNSAID):
            fresh(stream)
        held = place(stream)
        for caller, token, error in (
            ("job", "", "needs the token of the tail"),
            ("reader", "", "needs the token of the tail|has the roles reader"),
            ("job", "f" * 32, "not the token to|not on this data server"),
            ("job", held["token"], "not the token to feed"),
        ):
            server = Endpoint(held["location"], secured.callers[caller])
            for deed in deeds_of_others(held["tail"], reads=token != held["token"]):
                with (
                    TailClient(server, token) as client,
                    pytest.raises(AccessDeniedError, match=error),
                ):
                    deed(client)
        thief = Endpoint(held["location"], secured.callers["job"])
        with TailClient(thief) as client, pytest.raises(AccessDeniedError, match="not the token"):
            client.open(OpenTail(held["tail"], 10**9, {}))
        with secured.connect("reader") as cluster:
            assert len(fresh(stream, at_least=at_least, cluster=cluster)) == 15


def deeds_of_others(tail: str, *, reads: bool) -> list[Callable[[TailClient], object]]:
    """What nobody but the stream does with its tail, and without ``reads`` its readers."""
    rows = numbers(0, 666)
    forged = [(TailRange("p", 0, 1), rows)]
    found: list[Callable[[TailClient], object]] = [
        lambda client: client.put(TailPut(tail, 10**9), rows.schema, forged),
        lambda client: client.trim(tail, {}),
        lambda client: client.drop(tail),
    ]
    return [*found, *([lambda client: client.read(TailRead(tail))] if reads else [])]


@pytest.mark.slow
def test_only_known_callers_read_a_log_fresh(tmp_path: Path, secured: Secured) -> None:
    with secured.connect("job") as cluster:
        made = cluster.create_log("events")
        key, reads = made.key, made.handle("read")
        write_private(tmp_path / "events.handle", reads)
        cluster.append(str(key), numbers(0, *range(10)))
        job = tmp_path / "job.toml"
        for log, handle in ((str(key), str(key)), ("file:events.handle", reads)):
            job.write_text(
                f'[job]\nname = "pushed"\n[inputs.rows]\nlog = "{log}"\n[stream]\nlive = true\n'
                f'[output]\ntable = "out"\nmode = "append"\n[cluster]\nworkers = 1\n'
                + secured.section("job")
            )
            run = ingest(job)
            assert run.code == 0, run.stderr
            runs = (run, ended("explain", job), ended("ingest", "status", job))
            said = "".join(each.stdout + each.stderr for each in runs)
            assert said.count("events") > 1, "the log is named"
            for path in (tmp_path / "out").rglob("*"):
                said += str(path) + (path.read_bytes().decode("latin-1") if path.is_file() else "")
            assert handle.partition(":")[2] not in said
        cluster.append(str(key), numbers(0, *range(10, 15)))
        for caller in ("reader", "job"):
            with secured.connect(caller, reads) as reader:
                rows = mrflight.read_table(tmp_path / "out", fresh=True, cluster=reader)
                assert sorted(rows["n"].to_pylist()) == list(range(15))
        for caller in ("nobody", "stranger"):
            with (
                secured.connect(caller, reads) as reader,
                pytest.raises(MrflightError, match=REFUSED),
            ):
                mrflight.read_table(tmp_path / "out", fresh=True, cluster=reader, wait=0.5)
        for handles in ((), (made.handle("append", "drop"),)):
            with secured.connect("job", *handles) as reader, pytest.raises(JobFileError):
                mrflight.read_table(tmp_path / "out", fresh=True, cluster=reader, wait=0.5)
        counts = tmp_path / "counts.toml"
        counts.write_text(
            '[job]\nname = "counts"\n[inputs.rows]\npath = "out"\nfresh = true\n'
            '[reduce]\ngroup_by = ["producer"]\naggregate = { n = "count(*)" }\n'
            '[output]\ntable = "counts"\nmode = "overwrite"\n'
            '[cluster]\nworkers = 1\nlogs = ["file:events.handle"]\n' + secured.section("job")
        )
        mrflight.run(counts, progress=False)
        assert mrflight.read_table(tmp_path / "counts").to_pylist() == [{"producer": 0, "n": 15}]
        with pytest.raises(JobFileError, match=UNSAID):
            mrflight.read_table(tmp_path / "out", fresh=True)
        cluster.drop_log(str(key))
