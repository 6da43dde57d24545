"""An embedded cluster closes at any moment, even while it replaces a server."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from mrflight.runtime.local.server_process import ServerProcess
from tests.support.clusters.supervised_cluster import ClusterHarness, started, until
from tests.support.commands.threads import WAIT_S
from tests.support.faults.hanging_process import unresponsive

CLOSE_S = 1.5
"""How long closing may take, of the 5 s that an interrupted job has."""


def test_closing_waits_for_a_restart_and_ends_what_it_started(around: ClusterHarness) -> None:
    """The restart is held up after it has started the replacement, which is then ended, too."""
    reported, goes_on = threading.Event(), threading.Event()

    def hold_up(line: str) -> None:
        reported.set()
        assert goes_on.wait(WAIT_S)

    cluster = around.cluster(notify=hold_up)
    cluster.wait()
    before = set(around.servers())
    around.server("data0").kill()
    assert reported.wait(WAIT_S)
    until(lambda: set(around.servers()) == before - {"data0"} | {"data2"})
    closer = threading.Thread(target=cluster.close)
    closer.start()
    around.server("data1").kill()  # nobody minds any more
    goes_on.set()
    closer.join(WAIT_S)
    assert not closer.is_alive()
    until(around.is_empty)
    cluster.close()


def test_closing_at_any_moment_leaves_nothing(around: ClusterHarness) -> None:
    """Closing comes before or during a restart; which one differs from round to round."""
    replaced = 0
    for pause in range(20):
        with started(around.cluster(1)):
            around.server("data0").kill()
            for _ in range(pause):
                around.servers()  # takes about as long as it takes to notice
        count = around.messages.qsize()
        replaced += count
        until(around.is_empty)
        assert around.messages.qsize() == count  # nothing more comes after the close
        while not around.messages.empty():
            message = around.messages.get()
            assert message == "the data server data0 was killed by SIGKILL; data1 takes its place"
    assert 0 < replaced <= 20


@pytest.mark.parametrize("how", ["is stopped", "hangs"])
def test_closing_does_not_wait_for_a_fork_server_that_is_stopped_in_a_restart(
    how: str, around: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has reported the end of a server, and is about to be asked for a replacement."""
    fork_server = psutil.Process(around.fork_server.pid)
    is_held_up, stands_still = threading.Event(), threading.Event()
    really = ServerProcess.last_log_line

    def hold_up(server: ServerProcess) -> str:
        is_held_up.set()
        assert stands_still.wait(WAIT_S)
        return really(server)

    monkeypatch.setattr(ServerProcess, "last_log_line", hold_up)
    cluster = around.cluster()
    cluster.wait()
    around.server("data0").kill()
    assert is_held_up.wait(WAIT_S)
    with unresponsive(fork_server, how):
        stands_still.set()
        until(lambda: cluster._changing.locked())
        began = time.monotonic()
        cluster.close()
        assert time.monotonic() - began < CLOSE_S
        around.fork_server.close()
    assert not fork_server.is_running()
