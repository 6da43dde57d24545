"""Stopped servers of an embedded cluster are ended; other silent servers are not."""

from __future__ import annotations

import signal
import threading
from contextlib import closing

import pytest

from mrflight.config.identity import Endpoint
from mrflight.runtime import liveness_probe
from mrflight.runtime.liveness_probe import LivenessProbe
from tests.support.clusters.supervised_cluster import (
    NEVER_S,
    ClusterHarness,
    await_alive,
    declare_lost,
    started,
    watch_closely,
)
from tests.support.commands.threads import await_thread
from tests.support.suite.waiting import await_that, hang_s

SILENCE_S = 0.5


def test_a_stopped_metadata_server_is_replaced(around: ClusterHarness) -> None:
    with started(around.cluster()) as cluster:
        around.server("metadata").suspend()
        watch_closely(cluster, SILENCE_S)
        assert [around.message(), around.message()] == [
            "the metadata server has not answered for 0.5 s and is ended",
            "the metadata server was killed by SIGKILL; it is started again",
        ]
        await_alive(cluster, "data0", "data1")
        assert len(around.servers()) == 3
    assert around.messages.empty()


def test_a_driver_that_was_stopped_itself_ends_no_server(around: ClusterHarness) -> None:
    """Only the call that was under way is late; the next one is not."""
    ended: list[str] = []
    was_late = threading.Event()
    with started(around.cluster()) as cluster:
        metadata = around.server("metadata")

        class AnsweredAgain(LivenessProbe):
            def _count_late_call(self) -> None:
                super()._count_late_call()
                assert self.late_calls == 1
                metadata.resume()
                self._call_s = NEVER_S
                was_late.set()

        metadata.suspend()
        endpoint = Endpoint(cluster.metadata, cluster.identity)
        with closing(AnsweredAgain(endpoint, list, SILENCE_S, ended.append)) as probe:
            assert was_late.wait(hang_s())
            await_that(lambda: probe.late_calls == 0, "a call in time")
        await_thread(probe._thread)
        assert ended == []


@pytest.mark.slow
def test_stopped_data_servers_are_replaced(around: ClusterHarness) -> None:
    """The metadata server declares them lost, and then they do not answer the probe."""
    with started(around.cluster()) as cluster:
        for name in ("data0", "data1"):
            around.server(name).suspend()
        declare_lost(cluster, around.location("data0"), around.location("data1"))
        watch_closely(cluster, NEVER_S, reports=2)
        messages = sorted(around.message() for _ in range(4))
        assert messages[0] == "the data server data0 has not answered for 3600 s and is ended"
        assert messages[1].startswith("the data server data0 was killed by SIGKILL; data")
        assert messages[2] == "the data server data1 has not answered for 3600 s and is ended"
        assert messages[3].startswith("the data server data1 was killed by SIGKILL; data")
        await_alive(cluster, "data2", "data3")
        assert len(around.servers()) == 3
    assert around.messages.empty()


@pytest.mark.parametrize("name", ["data0", "metadata"])
def test_a_server_that_is_stopped_before_it_listens_is_replaced(
    around: ClusterHarness, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "data0":
        stopped, calls = "data2", "the data server {}"
        places = ["data2 takes its place", "data3 takes its place"]
        expected = {"data1", "data3"}
    else:
        stopped, calls = "metadata", "the metadata server"
        places = ["it is started again"] * 2
        expected = {"data0", "data1"}
    with started(around.cluster()) as cluster:
        around.hurt_at_fork(stopped, signal.SIGSTOP, monkeypatch)
        killed = around.kill(name)
        watch_closely(cluster, SILENCE_S)
        assert [killed, around.message(), around.message()] == [
            f"{calls.format(name)} was killed by SIGKILL; {places[0]}",
            f"{calls.format(stopped)} has not answered for 0.5 s and is ended",
            f"{calls.format(stopped)} was killed by SIGKILL; {places[1]}",
        ]
        await_alive(cluster, *expected)
        assert len(around.servers()) == 3
    assert around.messages.empty()


def test_a_data_server_that_was_declared_lost_and_answers_is_not_ended(
    around: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is registering again, or is about to end by itself."""
    monkeypatch.setattr(liveness_probe, "_LOST_CALL_S", NEVER_S)
    ended: list[str] = []
    was_asked = threading.Event()

    def suspects() -> list[str]:
        was_asked.set()
        return [around.location("data0"), around.location("nowhere")]

    with started(around.cluster()) as cluster:
        endpoint = Endpoint(cluster.metadata, cluster.identity)
        with closing(LivenessProbe(endpoint, suspects, NEVER_S, ended.append)) as probe:
            for _ in range(3):
                was_asked.clear()
                declare_lost(cluster, around.location("data0"))
                assert was_asked.wait(hang_s())
        await_thread(probe._thread)
        assert ended == []
