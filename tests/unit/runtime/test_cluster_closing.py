"""An embedded cluster closes at any moment, even while it replaces a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from mrflight.runtime.local.server_process import ServerProcess
from mrflight.runtime.supervised_cluster import SupervisedCluster
from tests.support.clusters.supervised_cluster import ClusterHarness, Notices
from tests.support.commands.threads import await_thread, run_threads
from tests.support.faults.hanging_process import unresponsive
from tests.support.suite.waiting import await_that, hang_s


class HeldUp:
    """Holds up calls of a method from the moment that a test says so, until it lets them go on."""

    def __init__(self, owner: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()
        really: Callable[..., object] = getattr(owner, method)

        def held_up(of: object, *arguments: Any, **named: Any) -> object:
            if not self.goes_on.is_set():
                self.begun.set()
                assert self.goes_on.wait(hang_s())
            return really(of, *arguments, **named)

        monkeypatch.setattr(owner, method, held_up)


STEPS = {
    "notices its end": (SupervisedCluster, "_replace"),
    "asks how it ended": (ServerProcess, "describe_end"),
    "reads its log": (ServerProcess, "last_log_line"),
    "starts another one": (SupervisedCluster, "_start_replacement"),
    "has started another one": (ServerProcess, "is_started"),
    "reports it": (Notices, "notify"),
}
"""What is about to happen in a restart, in this order."""


KILLED = "the data server data0 was killed by SIGKILL; "
RESTARTED = {
    f"{KILLED}data2 takes its place",
    f"{KILLED}it is not replaced: mrflight-data2 was not started: the fork server hangs",
}
"""The second where a restart is held up for longer than closing waits for it."""


@pytest.mark.parametrize("step", STEPS)
def test_closing_during_a_restart_ends_all_servers_and_starts_no_more(
    step: str, around: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the restart, and then ends what that has started."""
    owner, method = STEPS[step]
    restart = HeldUp(owner, method, monkeypatch)
    cluster = around.cluster()
    cluster.wait()
    before = set(around.servers())
    restart.goes_on.clear()
    around.server("data0").kill()
    assert restart.begun.wait(hang_s())
    if list(STEPS).index(step) >= 4:
        after = before - {"data0"} | {"data2"}
        await_that(lambda: set(around.servers()) == after, "the replacement")
    closer = threading.Thread(target=cluster.close)
    closer.start()
    supervisors = cluster._supervisors
    await_that(lambda: any(each._stopping.is_set() for each in supervisors), "closing to begin")
    around.server("data1").kill()  # nobody minds any more
    restart.goes_on.set()
    await_thread(closer)
    await_that(around.is_empty, "the servers to end")
    assert around.messages.qsize() <= 1  # and nothing more comes after the close
    while not around.messages.empty():
        message = around.messages.get()
        assert message in RESTARTED
    cluster.close()


def test_closing_before_a_killed_server_is_noticed_leaves_nothing(around: ClusterHarness) -> None:
    cluster = around.cluster(1)
    cluster.wait()
    for supervisor in cluster._supervisors:
        supervisor.close()
    around.server("data0").kill()
    cluster.close()
    await_that(around.is_empty, "the servers to end")
    assert around.messages.empty()


@pytest.mark.slow_but("is stopped")
@pytest.mark.parametrize("how", ["is stopped", "hangs"])
def test_closing_does_not_wait_for_a_fork_server_that_is_stopped_in_a_restart(
    how: str, around: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has reported the end of a server, and is about to be asked for a replacement."""
    fork_server = psutil.Process(around.fork_server.pid)
    restart = HeldUp(ServerProcess, "last_log_line", monkeypatch)
    cluster = around.cluster()
    cluster.wait()
    restart.goes_on.clear()
    around.server("data0").kill()
    assert restart.begun.wait(hang_s())
    with unresponsive(fork_server, how):
        restart.goes_on.set()
        await_that(cluster._changing.locked, "the restart to go on")
        run_threads([cluster.close])
        around.fork_server.close()
    assert not fork_server.is_running()
