"""Stopped servers of an embedded cluster are ended; other silent servers are not."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing

import pytest

from mrflight.config.identity import ClientOptions, Endpoint
from mrflight.runtime.liveness_probe import LivenessProbe
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.connections import Connections
from tests.support.clusters.supervised_cluster import ClusterHarness, alive, started, until
from tests.support.commands.threads import WAIT_S


def test_a_stopped_metadata_server_is_replaced(around: ClusterHarness) -> None:
    with started(around.cluster()) as cluster:
        around.server("metadata").suspend()
        messages = [around.messages.get(timeout=WAIT_S) for _ in range(2)]
        assert messages == [
            "the metadata server has not answered for 3 s and is ended",
            "the metadata server was killed by SIGKILL; it is started again",
        ]
        until(lambda: alive(cluster) == {"data0", "data1"})
        assert len(around.servers()) == 3
    assert around.messages.empty()


def test_a_driver_that_was_stopped_itself_ends_no_server(around: ClusterHarness) -> None:
    """Only the call that was under way is late; the next one is not."""
    ended: list[str] = []
    with started(around.cluster()) as cluster:
        metadata = around.server("metadata")
        probe = LivenessProbe(Endpoint(cluster.metadata, cluster.identity), list, 2.0, ended.append)
        metadata.suspend()
        with closing(probe):
            until(lambda: probe.late_calls == 1)
            metadata.resume()
            until(lambda: probe.late_calls == 0)
        probe.join(WAIT_S)
        assert ended == []


def test_stopped_data_servers_are_replaced(around: ClusterHarness) -> None:
    with started(around.cluster()) as cluster:
        for name in ("data0", "data1"):
            around.server(name).suspend()
        messages = sorted(around.messages.get(timeout=WAIT_S) for _ in range(4))
        assert messages[0] == "the data server data0 has not answered for 3 s and is ended"
        assert messages[1].startswith("the data server data0 was killed by SIGKILL; data")
        assert messages[2] == "the data server data1 has not answered for 3 s and is ended"
        assert messages[3].startswith("the data server data1 was killed by SIGKILL; data")
        until(lambda: alive(cluster) == {"data2", "data3"})
        assert len(around.servers()) == 3
    assert around.messages.empty()


@pytest.mark.parametrize(
    ("name", "calls", "again"),
    [
        ("data0", "the data server {}", "data{} takes its place"),
        ("metadata", "the metadata server", "it is started again"),
    ],
)
def test_a_server_that_is_stopped_before_it_listens_is_replaced(
    around: ClusterHarness, name: str, calls: str, again: str
) -> None:
    """It is stopped within a millisecond of its fork; if that was too late, the next one is."""
    number = 2  # of the data server that takes the place of data0
    is_stopped = False

    def stop_one_that_does_not_listen(line: str) -> None:
        nonlocal number, is_stopped
        if not is_stopped:
            started_last = around.fork_server.pids()[-1]
            os.kill(started_last, signal.SIGSTOP)
            socket = f"data{number}.sock" if name == "data0" else "metadata.sock"
            if (around.folder.path / socket).exists():
                os.kill(started_last, signal.SIGKILL)
                number += 1
                return
            is_stopped = True
        around.messages.put(line)

    with started(around.cluster(notify=stop_one_that_does_not_listen)) as cluster:
        messages = [around.kill(name), *(around.messages.get(timeout=WAIT_S) for _ in range(2))]
        killed = "data0" if number == 2 else f"data{number - 1}"
        assert messages == [
            f"{calls.format(killed)} was killed by SIGKILL; {again.format(number)}",
            f"{calls.format(f'data{number}')} has not answered for 3 s and is ended",
            f"{calls.format(f'data{number}')} was killed by SIGKILL; {again.format(number + 1)}",
        ]
        expected = {"data1", f"data{number + 1}"} if name == "data0" else {"data0", "data1"}
        until(lambda: alive(cluster) == expected)
        assert len(around.servers()) == 3
    assert around.messages.empty()


def test_a_data_server_that_was_declared_lost_and_answers_is_not_ended(
    around: ClusterHarness,
) -> None:
    """It is registering again, or is about to end by itself."""
    ended: list[str] = []
    was_asked = threading.Event()

    def suspects() -> list[str]:
        was_asked.set()
        return [around.location("data0"), around.location("nowhere")]

    with started(around.cluster()) as cluster:
        with Connections(ClientOptions(identity=cluster._tokens.of_servers)) as connections:
            client = MetadataClient(cluster.metadata, connections)
            with closing(
                LivenessProbe(
                    Endpoint(cluster.metadata, cluster.identity), suspects, 2.0, ended.append
                )
            ) as probe:
                for _ in range(3):
                    was_asked.clear()
                    client.unregister_server(around.location("data0"))
                    assert was_asked.wait(WAIT_S)
            probe.join(WAIT_S)
        assert ended == []
