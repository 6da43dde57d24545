"""A server with heartbeats stays registered while events cannot be recorded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mrflight.errors import JournalError
from mrflight.shuffle.metadata.events import AnyEvent, PartitionsPlaced
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from tests.support.clusters.placed_shuffles import placement, registry_with_clicks
from tests.support.clusters.registries import TIMEOUT_S, Clock, health
from tests.support.suite.waiting import await_that, hang_s


def test_a_server_with_heartbeats_is_not_lost_while_the_disk_is_full() -> None:
    is_full = False

    def record(event: AnyEvent) -> None:
        if is_full:
            raise JournalError("no room")

    clock = Clock()
    registry = Registry(clock, TIMEOUT_S, record)
    for name in "abc":
        registry.register_server(name)
    is_full = True
    for _ in range(5):  # c sends none, and its loss cannot be recorded
        clock.now_s += TIMEOUT_S / 2
        for name in "ab":
            try:
                registry.heartbeat(name, [], 0)
            except JournalError:
                assert clock.now_s > TIMEOUT_S
    is_full = False
    assert [registry.heartbeat(name, [], 0)[0] for name in "abc"] == [True, True, False]


def test_a_heartbeat_that_waits_for_a_slow_disk_counts() -> None:
    is_slow, is_written = threading.Event(), threading.Event()

    def record(event: AnyEvent) -> None:
        if is_slow.is_set():
            assert is_written.wait(hang_s())

    clock = Clock()
    registry = registry_with_clicks(record=record, clock=clock)
    before = placement(registry)
    is_slow.set()
    with ThreadPoolExecutor(4) as pool:
        created = pool.submit(registry.put_shuffle, "slow", 3)
        await_that(registry._lock.locked, "the lock to be taken")
        beats = [pool.submit(registry.heartbeat, name, [], 0) for name in "abc"]
        await_that(lambda: len(registry._pending_heartbeats) == 3, "three heartbeats")
        clock.now_s += 2 * TIMEOUT_S
        is_written.set()
        assert [beat.result(hang_s()) for beat in beats] == [(True, [])] * 3
        assert len(created.result(hang_s())) == 3
    assert placement(registry) == before
    assert registry._pending_heartbeats == {}


@pytest.mark.parametrize("location", ["never there", "a"])
def test_reporting_a_location_without_a_server_changes_nothing(location: str) -> None:
    events: list[AnyEvent] = []
    registry = registry_with_clicks(record=events.append)
    registry.unregister_server("a")
    version, before = health(registry)[0], len(events)
    for _ in range(3):
        assert registry.report_loss("clicks", Loss(location, avoids=True)) is False
    assert (health(registry)[0], len(events)) == (version, before)


def test_reporting_a_live_server_without_partitions_avoids_it() -> None:
    events: list[AnyEvent] = []
    registry = registry_with_clicks(record=events.append)
    registry.register_server("d")
    assert registry.report_loss("clicks", Loss("d", avoids=True)) is True
    assert registry.report_loss("clicks", Loss("d", avoids=True)) is False
    registry.report_loss("clicks", Loss("a", avoids=True))
    assert isinstance(events[-1], PartitionsPlaced)
    assert all("d" not in places for places in placement(registry))
