"""Servers of an embedded cluster are replaced up to a limit, and only if one can be started."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import closing

import psutil

from mrflight.errors import JobFailedError
from mrflight.system.restart_limit import MAX_RESTARTS, WITHIN_S, RestartLimit
from tests.support.clusters.supervised_cluster import ClusterHarness, await_alive, started
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that, hang_s


def test_restarts_of_long_ago_do_not_count() -> None:
    now_s = 0.0
    limit = RestartLimit(clock=lambda: now_s)
    for number in range(MAX_RESTARTS):
        now_s = float(number)
        assert not limit.is_reached
        limit.note_restart()
    assert limit.is_reached
    now_s = WITHIN_S
    assert not limit.is_reached  # the first is an hour old
    limit.note_restart()
    assert limit.is_reached
    now_s = WITHIN_S + 1
    assert not limit.is_reached


def test_servers_of_each_kind_are_replaced_up_to_a_limit(around: ClusterHarness) -> None:
    with started(around.cluster()) as cluster:
        for _ in range(MAX_RESTARTS):
            before = around.server("metadata").pid
            reported = around.kill("metadata")  # most of them before they are ready
            assert reported == "the metadata server was killed by SIGKILL; it is started again"
            assert around.server("metadata").pid != before
        reported = around.kill("metadata")
        assert reported == (
            "the metadata server was killed by SIGKILL; it is not replaced: the limit of 8 "
            "restarts is reached"
        )
        assert set(around.servers()) == {"data0", "data1"}
        assert around.kill("data0").endswith("data2 takes its place")  # they are counted apart
        assert around.messages.empty()
        assert cluster.metadata == around.location("metadata")


def test_servers_that_cannot_start_are_retried_up_to_a_limit(around: ClusterHarness) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with started(around.cluster()):
        around.spill.rmdir()
        around.spill.write_text("in the way")
        reported = [
            around.kill("data0"),
            *(around.message() for _ in range(8)),
        ]
        assert reported[0] == "the data server data0 was killed by SIGKILL; data2 takes its place"
        refusal = f"(mrflight: --spill-dir {around.spill}"
        for number, line in enumerate(reported[1:], 2):
            assert line.startswith(f"the data server data{number} ended with code 2 {refusal}")
        outcomes = [line.rpartition("; ")[2] for line in reported]
        assert outcomes == [
            *(f"data{number} takes its place" for number in range(2, 10)),
            "it is not replaced: the limit of 8 restarts is reached",
        ]
        assert set(around.servers()) == {"metada", "data1"}
        around.spill.unlink()
    assert around.messages.empty()
    around.fork_server.close()
    # gRPC closes the sockets of the probe's last call a moment after it has ended.
    await_that(lambda: set(os.listdir("/proc/self/fd")) <= before, "all files to be closed")


def test_a_server_that_never_starts_fails_the_job_and_is_not_replaced(
    around: ClusterHarness,
) -> None:
    around.spill.write_text("in the way")
    cluster = around.cluster()
    with closing(cluster), refused(JobFailedError):
        cluster.wait()
    assert around.messages.empty()
    around.spill.unlink()


def test_all_servers_end_with_their_fork_server_and_are_replaced(
    around: ClusterHarness,
) -> None:
    with started(around.cluster()) as cluster:
        servers = list(around.servers().values())
        os.kill(around.fork_server.pid, signal.SIGKILL)
        reported = {around.message() for _ in range(3)}
        assert "the metadata server was killed by SIGKILL; it is started again" in reported
        dead = {line.split()[3] for line in reported if "data server data" in line}
        assert dead == {"data0", "data1"}
        await_alive(cluster, "data2", "data3")
        assert psutil.wait_procs(servers, timeout=hang_s())[1] == []
    assert around.messages.empty()
    await_that(around.is_empty, "the servers to end")


def test_without_a_fork_server_nothing_is_started_and_that_is_reported(
    around: ClusterHarness,
) -> None:
    """Too many fork servers have been killed."""
    for _ in range(MAX_RESTARTS):
        around.fork_server._restarts.note_restart()
    with started(around.cluster()):
        servers = list(around.servers().values())
        os.kill(around.fork_server.pid, signal.SIGKILL)
        reported = {around.message() for _ in range(3)}
        why = "it is not replaced: there is no process left to fork it from"
        assert reported == {
            f"{called} was killed by SIGKILL; {why}"
            for called in ("the metadata server", "the data server data0", "the data server data1")
        }
        assert psutil.wait_procs(servers, timeout=hang_s())[1] == []
    shutil.rmtree(around.spill)  # which the fork server does otherwise
