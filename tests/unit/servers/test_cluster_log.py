"""The page of a cluster waits for the next event, and not for a time."""

from __future__ import annotations

import threading

from mrflight.servers.cluster_log import ClusterLog

from mrflight.shuffle.metadata.events import ServerDraining, ServerJoined, ShuffleDropped
from tests.support.commands.threads import await_thread
from tests.support.suite.waiting import hang_s


def test_it_wakes_who_waits_for_the_next_event() -> None:
    log = ClusterLog()
    log.note(ServerJoined("a", "1"))
    assert log.wait(0, hang_s()) == 1  # which has happened before
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(log.wait(1, 86_400.0)), daemon=True)
    waiting.start()
    log.note(ShuffleDropped("clicks"))  # which is not in the log, and changes the page
    await_thread(waiting)
    assert found == [2]
    assert log.wait(2, 0.0) == 2
    log.note(ServerDraining("a"))
    assert [row.what for row in log.rows()] == ["a has joined", "a is about to stop"]
    assert log.count == 2
