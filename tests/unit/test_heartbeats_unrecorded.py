"""Heartbeats while nothing can be recorded: who beats lives, whoever else is gone."""

from __future__ import annotations

import pytest

from mrflight.errors import JournalError
from mrflight.shuffle.events import AnyEvent, PartitionsPlaced
from mrflight.shuffle.registry import Registry
from tests.support.placed_shuffles import placement, registry_with_clicks
from tests.support.registries import TIMEOUT_S, Clock


def test_who_beats_is_not_given_up_for_a_disk_that_was_full() -> None:
    is_full = False

    def record(event: AnyEvent) -> None:
        if is_full:
            raise JournalError("no room")

    clock = Clock()
    registry = Registry(clock, TIMEOUT_S, record)
    for name in "abc":
        registry.register_server(name)
    is_full = True
    for _ in range(5):  # c is silent, and cannot be recorded as gone
        clock.now_s += TIMEOUT_S / 2
        for name in "ab":
            try:
                registry.heartbeat(name, [], 0)
            except JournalError:
                assert clock.now_s > TIMEOUT_S
    is_full = False
    assert [registry.heartbeat(name, [], 0)[0] for name in "abc"] == [True, True, False]


@pytest.mark.parametrize("location", ["nobody", "a"])
def test_a_loss_where_nothing_is_and_nobody_lives_is_no_news(location: str) -> None:
    events: list[AnyEvent] = []
    registry = registry_with_clicks(record=events.append)
    registry.unregister_server("a")
    version, before = registry.health("clicks")[0], len(events)
    for _ in range(3):
        assert registry.lose("clicks", location) is False
    assert (registry.health("clicks")[0], len(events)) == (version, before)


def test_a_loss_where_nothing_is_and_somebody_lives_keeps_it_away() -> None:
    events: list[AnyEvent] = []
    registry = registry_with_clicks(record=events.append)
    registry.register_server("d")
    assert registry.lose("clicks", "d") is True
    assert registry.lose("clicks", "d") is False
    registry.lose("clicks", "a")
    assert isinstance(events[-1], PartitionsPlaced)
    assert all("d" not in places for places in placement(registry))
