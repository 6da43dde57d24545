"""The page of a cluster waits for the next event, and not for a time."""

from __future__ import annotations

import threading

from mrflight.servers.cluster_log import ClusterLog

from mrflight.shuffle.metadata.events import ServerDraining, ServerJoined, ShuffleDropped

TIMEOUT_S = 60.0


def test_it_wakes_who_waits_for_the_next_event() -> None:
    log = ClusterLog()
    log.note(ServerJoined("a", "1"))
    assert log.wait(0, TIMEOUT_S) == 1  # which has happened before
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(log.wait(1, TIMEOUT_S)))
    waiting.start()
    log.note(ShuffleDropped("clicks"))  # which is not in the log, and changes the page
    waiting.join(TIMEOUT_S / 2)
    assert found == [2]
    assert log.wait(2, 0.0) == 2
    log.note(ServerDraining("a"))
    assert [row.what for row in log.rows()] == ["a has joined", "a is about to stop"]
    assert log.count == 2
