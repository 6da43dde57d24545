"""The data servers of a registry: which of them are alive, and which take new partitions."""

from __future__ import annotations

import pytest

from mrflight.errors import NoDataServersError
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.cluster_status import ServerStatus
from tests.support.clusters.placed_shuffles import placement
from tests.support.clusters.registries import TIMEOUT_S, Clock, commit, health
from tests.support.suite.messages import refused


@pytest.fixture
def registry(clock: Clock) -> Registry:
    """Return a registry with three servers, and a shuffle of two partitions on a and b."""
    registry = Registry(clock, TIMEOUT_S)
    for name in ("a", "b", "c"):
        registry.register_server(name, f"first {name}")
    registry.put_shuffle("clicks", 2)
    return registry


def locations(registry: Registry) -> list[str]:
    return [server.location for server in registry.overview.servers()]


def test_partitions_are_placed_on_live_servers_only(registry: Registry, clock: Clock) -> None:
    clock.now_s = TIMEOUT_S
    assert registry.heartbeat("b", [], 0, "first b") == (True, [])
    assert locations(registry) == ["a", "b", "c"]
    clock.now_s = TIMEOUT_S + 1
    registry.put_shuffle("late", 4)
    assert placement(registry, "late") == [("b",)] * 4
    assert placement(registry) == [("b",)] * 2
    assert registry.overview.servers() == [ServerStatus("b", 6, 0)]
    assert [registry.incarnation(name) for name in ("a", "b", "c")] == [None, "first b", None]


def test_a_lost_server_that_is_back_must_register_again(registry: Registry, clock: Clock) -> None:
    clock.now_s = TIMEOUT_S + 1
    with pytest.raises(NoDataServersError):
        registry.put_shuffle("late", 1)
    assert registry.heartbeat("a", ["clicks"], 7, "first a") == (False, [])
    assert registry.overview.servers() == []
    registry.register_server("a", "first a")
    assert registry.heartbeat("a", ["clicks"], 7, "first a") == (True, [])
    registry.put_shuffle("late", 1)
    assert placement(registry, "late") == [("a",)]
    assert placement(registry) == [("a",)] * 2
    assert registry.overview.servers() == [ServerStatus("a", 3, 7)]


def test_a_heartbeat_of_an_unknown_server_is_answered_so(registry: Registry) -> None:
    assert registry.heartbeat("new", ["clicks", "gone"], 0) == (False, ["gone"])
    assert locations(registry) == ["a", "b", "c"]


def test_an_unregistered_server_gets_no_partitions(registry: Registry) -> None:
    registry.unregister_server("a")
    registry.unregister_server("never there")
    registry.put_shuffle("late", 4)
    assert {location for (location,) in placement(registry, "late")} == {"b", "c"}
    assert locations(registry) == ["b", "c"]


def test_the_next_shuffle_starts_on_the_least_loaded_server(registry: Registry) -> None:
    (first,), (second,) = placement(registry)
    registry.put_shuffle("next", 1)
    assert placement(registry, "next")[0][0] not in (first, second)


def test_registering_twice_changes_nothing(registry: Registry) -> None:
    commit(registry, MapAttempt(0, 0), [1, 1])
    registry.register_server("a", "first a")
    assert health(registry) == (0, [])
    assert [info.rows for info in registry.partitions("clicks")[1]] == [1, 1]


def test_another_process_at_a_location_has_no_blocks_of_the_first(registry: Registry) -> None:
    commit(registry, MapAttempt(0, 0), [1, 1])
    assert placement(registry) == [("a",), ("b",)]
    registry.register_server("a", "second a")
    assert health(registry) == (1, [0])
    assert placement(registry) == [("c",), ("b",)]
    assert registry.heartbeat("a", [], 0, "first a") == (False, [])
    assert registry.heartbeat("a", [], 0, "second a") == (True, [])
    assert registry.heartbeat("a", [], 0) == (False, [])


def test_the_heartbeat_of_another_process_does_not_keep_one_alive(
    registry: Registry, clock: Clock
) -> None:
    clock.now_s = TIMEOUT_S
    registry.heartbeat("a", [], 99, "second a")
    clock.now_s = TIMEOUT_S + 1
    assert registry.incarnation("a") is None


def test_a_draining_server_keeps_its_partitions_and_gets_no_new_ones(registry: Registry) -> None:
    commit(registry, MapAttempt(0, 0), [1, 1])
    for _ in range(2):
        registry.drain_server("a")
    registry.drain_server("never there")
    assert health(registry) == (0, [])
    assert placement(registry) == [("a",), ("b",)]
    assert registry.heartbeat("a", [], 0, "first a") == (True, [])
    registry.put_shuffle("late", 4)
    assert {location for (location,) in placement(registry, "late")} == {"b", "c"}
    registry.unregister_server("b")
    assert {at for name in ("clicks", "late") for (at,) in placement(registry, name)} == {"a", "c"}
    assert [at for (at,) in placement(registry, "late")] == ["c"] * 4
    assert placement(registry) == [("a",), ("c",)]


def test_if_all_servers_drain_nothing_can_be_placed(registry: Registry) -> None:
    for name in ("a", "b", "c"):
        registry.drain_server(name)
    with refused(NoDataServersError):
        registry.put_shuffle("late", 1)
    registry.unregister_server("a")
    with refused(NoDataServersError):
        registry.describe_shuffle("clicks")
    registry.register_server("a", "second a")
    assert placement(registry) == [("a",), ("b",)]


def test_a_late_unregistration_does_not_remove_the_next_process(clock: Clock) -> None:
    registry = Registry(clock, TIMEOUT_S)
    registry.register_server("a", "first")
    registry.register_server("a", "second")
    registry.unregister_server("a", "first")
    assert registry.incarnation("a") is not None
    registry.unregister_server("a", "second")
    assert registry.incarnation("a") is None


def test_a_draining_server_that_registers_again_keeps_draining(clock: Clock) -> None:
    """It does so when the answer to its first request was lost."""
    registry = Registry(clock, TIMEOUT_S)
    for name in ("a", "b"):
        registry.register_server(name, name)
    registry.drain_server("a")
    registry.register_server("a", "a")
    assert set(registry.put_shuffle("clicks", 4)) == {("b",)}


def test_a_new_process_at_an_avoided_location_is_used(clock: Clock) -> None:
    registry = Registry(clock, TIMEOUT_S)
    registry.register_server("a", "first")
    registry.put_shuffle("clicks", 2)
    assert registry.report_loss("clicks", Loss("a", avoids=True))
    with pytest.raises(NoDataServersError):
        registry.describe_shuffle("clicks")
    registry.register_server("a", "second")
    assert set(registry.describe_shuffle("clicks").places) == {("a",)}
