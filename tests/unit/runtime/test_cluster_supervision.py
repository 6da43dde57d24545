"""Servers of an embedded cluster that end are replaced; the tests kill real servers."""

from __future__ import annotations

import signal
from contextlib import closing
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from mrflight.config.identity import ClientOptions, Identity
from mrflight.runtime.local.server_process import ServerProcess
from mrflight.shuffle.client.cluster import connect
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.clusters.supervised_cluster import (
    NEVER_S,
    ClusterHarness,
    alive,
    await_alive,
    declare_lost,
    started,
)


def stats_of(location: str, identity: Identity) -> ServerStats:
    with Connections(ClientOptions(identity=identity)) as connections:
        return call(connections, location, DataAction.STATS, Done(), ServerStats)


def test_a_data_server_that_is_killed_is_replaced(around: ClusterHarness) -> None:
    with started(around.cluster()) as cluster:
        assert alive(cluster) == {"data0", "data1"}
        reported = around.kill("data0")
        assert reported == "the data server data0 was killed by SIGKILL; data2 takes its place"
        await_alive(cluster, "data2")
        assert stats_of(around.location("data2"), cluster.identity).blocks == 0
        reported = around.kill("data2")
        assert reported == "the data server data2 was killed by SIGKILL; data3 takes its place"
        await_alive(cluster, "data3")
        assert (
            stats_of(around.location("data1"), cluster.identity).blocks == 0
        )  # which nothing happened to
        assert len(around.servers()) == 3


def test_the_metadata_server_is_restarted_at_its_location(around: ClusterHarness) -> None:
    with started(around.cluster()) as cluster:
        before = around.server("metadata").pid
        reported = around.kill("metadata")
        assert reported == "the metadata server was killed by SIGKILL; it is started again"
        assert around.server("metadata").pid != before
        await_alive(cluster, "data0", "data1")  # who come by themselves
        assert len(around.servers()) == 3


@pytest.mark.slow_but("data1-killed")
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("metadata", signal.SIGSTOP),
        ("metadata", signal.SIGKILL),
        ("data1", signal.SIGKILL),
    ],
    ids=["metadata-stopped", "metadata-killed", "data1-killed"],
)
def test_a_server_that_is_killed_while_it_starts_is_replaced(
    around: ClusterHarness, name: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped or killed right after its fork; what follows may take as long as it likes."""

    def notify(line: str) -> None:
        cluster._limits = cluster._limits._replace(slow_s=NEVER_S)
        around.messages.put(line)

    if number == signal.SIGSTOP:
        monkeypatch.setattr("mrflight.runtime.local.cluster.SLOW_START_S", 0.5)
    around.hurt_at_fork(name, number, monkeypatch)
    cluster = around.cluster(notify=notify)
    with closing(cluster):
        cluster.wait()
        if number == signal.SIGSTOP:  # or who reads that it was killed would look for who did it
            ended = "the metadata server has not answered for 0.5 s and is ended"
            assert around.message() == ended
        await_alive(cluster, "data0", "data2" if name == "data1" else "data1")
        with connect(cluster.metadata, identity=cluster.identity) as client:
            shuffle = client.create_shuffle("numbers", partitions=4)
            with shuffle.writer(map_id=0, attempt=0, key=["key"]) as out:
                out.write(pa.record_batch({"key": np.arange(1000)}))
            assert sum(info.rows for info in shuffle.layout()[1]) == 1000


def test_all_servers_may_be_killed_at_once(around: ClusterHarness) -> None:
    with started(around.cluster(3)) as cluster:
        for process in around.servers().values():
            process.kill()
        reported = sorted(around.message() for _ in range(4))
        ended = [line.partition(";")[0] for line in reported]
        places = {line.partition("; ")[2] for line in reported}
        assert ended == [
            *(f"the data server data{n} was killed by SIGKILL" for n in range(3)),
            "the metadata server was killed by SIGKILL",
        ]
        assert places == {
            *(f"data{number} takes its place" for number in range(3, 6)),
            "it is started again",
        }
        await_alive(cluster, "data3", "data4", "data5")


def test_a_replacement_has_the_same_memory_and_spill_folder(
    around: ClusterHarness,
) -> None:
    batch = pa.record_batch({"key": np.arange(1_000_000)})  # 8 MB, where each server holds 1 MiB
    with started(around.cluster()) as cluster:
        around.kill("data0")
        around.kill("data1")
        await_alive(cluster, "data2", "data3")
        declare_lost(cluster, around.location("data0"), around.location("data1"))
        with connect(cluster.metadata, identity=cluster.identity) as client:
            shuffle = client.create_shuffle("numbers", partitions=4)
            with shuffle.writer(map_id=0, attempt=0, key=["key"]) as out:
                out.write(batch)
            read = [list(shuffle.reader(partition)) for partition in range(4)]
        rows = pa.Table.from_batches(chain.from_iterable(read))
        assert sorted(rows["key"].to_pylist()) == batch["key"].to_pylist()
        for name in ("data2", "data3"):
            stats = stats_of(around.location(name), cluster.identity)
            assert stats.memory_bytes <= 1 << 20
            assert stats.spilled_bytes > 0
        folders = [path for path in around.spill.iterdir() if path.is_dir()]
        assert len(folders) == 2  # those of the dead are gone


def test_the_way_a_server_ended_is_reported(around: ClusterHarness) -> None:
    with started(around.cluster()):
        reported = around.kill("data0", signal.SIGSEGV)
        assert reported == "the data server data0 was killed by SIGSEGV; data2 takes its place"
        reported = around.kill("data1", signal.SIGTERM)  # so it drains, and ends by itself
        assert reported.startswith("the data server data1 ended with code 0 (")
        assert reported.endswith("stopping); data3 takes its place")


def test_a_bug_of_mrflight_costs_one_server_and_is_reported(
    around: ClusterHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really = ServerProcess.last_log_line

    def raise_for_data0(server: ServerProcess) -> str:
        if server.name == "data0":
            raise ValueError("a bug")
        return really(server)

    monkeypatch.setattr(ServerProcess, "last_log_line", raise_for_data0)
    with started(around.cluster()) as cluster:
        assert around.kill("data0") == (
            "a process ended and was not replaced because of a bug in mrflight: ValueError: a bug"
        )
        reported = around.kill("data1")
        assert reported == "the data server data1 was killed by SIGKILL; data2 takes its place"
        await_alive(cluster, "data2")
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert record.exc_info is not None
