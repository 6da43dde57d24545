"""Replicas prevent losses, and a partition that was moved is read and written at its new place."""

from __future__ import annotations

import pytest

from mrflight.errors import PlacementChangedError, ProtocolError
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.protocol import ShuffleDescription
from tests.support.clusters.placed_shuffles import (
    FIRST,
    SECOND,
    counting,
    placement,
    registry_with_clicks,
    rows,
)
from tests.support.clusters.registries import TIMEOUT_S, Clock, commit, health
from tests.support.suite.messages import refused

# Replicas


def test_a_partition_with_a_replica_is_not_lost() -> None:
    registry = registry_with_clicks(replicas=2)
    assert placement(registry) == [("a", "b"), ("c", "a"), ("c", "b")]
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    assert placement(registry) == [("a",), ("c", "a"), ("c",)]
    assert health(registry) == (1, [])
    assert rows(registry) == [1, 2, 3]
    assert commit(registry, SECOND, [1, 2, 3], version=1) == FIRST


def test_a_writer_to_both_replicas_may_commit_after_one_is_lost() -> None:
    registry = registry_with_clicks(replicas=2)
    registry.unregister_server("b")
    assert commit(registry, FIRST, [1, 2, 3], version=0) == FIRST
    assert rows(registry) == [1, 2, 3]
    assert health(registry) == (1, [])


def test_losing_the_last_replica_loses_the_partition() -> None:
    registry = registry_with_clicks(replicas=2, servers="abcd")
    assert placement(registry) == [("a", "b"), ("c", "d"), ("b", "a")]
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    registry.unregister_server("a")
    assert placement(registry) == [("c", "d"), ("c", "d"), ("d", "c")]
    assert registry.describe_shuffle("clicks", 0).missing == [0, 2]
    assert counting(registry, 1) == [FIRST]
    assert commit(registry, SECOND, [1, 2, 3], version=2) == SECOND
    assert rows(registry) == [1, 2, 3]


def test_losing_both_replicas_at_once_loses_the_partition(clock: Clock) -> None:
    registry = registry_with_clicks(replicas=2, servers="abcd", partitions=2, clock=clock)
    assert placement(registry) == [("a", "b"), ("c", "d")]
    commit(registry, FIRST, [1, 2])
    clock.now_s = TIMEOUT_S
    for name in "cd":
        registry.heartbeat(name, ["clicks"], 0)
    clock.now_s += 1
    assert health(registry)[1] == [0]
    assert registry.describe_shuffle("clicks", 0).missing == [0]
    assert placement(registry) == [("c", "d"), ("c", "d")]


def test_with_fewer_servers_than_replicas_a_lost_partition_has_fewer() -> None:
    registry = registry_with_clicks(replicas=2)
    registry.unregister_server("b")
    registry.unregister_server("a")
    assert placement(registry) == [("c",)] * 3
    registry.register_server("d")
    registry.unregister_server("c")
    assert placement(registry) == [("d",)] * 3


def test_a_reported_partition_is_read_from_its_replica() -> None:
    registry = registry_with_clicks(replicas=2)
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("b", [0]))
    assert placement(registry) == [("a",), ("c", "a"), ("c", "b")]
    assert health(registry) == (1, [])
    assert rows(registry) == [1, 2, 3]


# Moves


def test_a_moved_partition_is_read_at_its_target(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.moves.record("clicks", {1: "c"}, "b", epoch=1, version=0)
    assert placement(registry) == [("a",), ("c",), ("c",)]
    assert health(registry) == (1, [])
    assert rows(registry) == [1, 2, 3]
    assert counting(registry, 1) == [FIRST]
    registry.unregister_server("b")
    assert health(registry) == (1, [])


def test_a_commit_to_the_former_location_of_a_partition_is_refused(registry: Registry) -> None:
    registry.moves.record("clicks", {1: "c"}, "b", epoch=0, version=0)
    with pytest.raises(PlacementChangedError, match="attempt 0 of map 0") as moved:
        commit(registry, FIRST, [1, 2, 3], version=0)
    assert moved.value.retryable
    assert registry.commits("clicks", 0) == []
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert rows(registry) == [1, 2, 3]


def test_a_move_does_not_affect_a_writer_of_other_partitions(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("a")
    assert registry.describe_shuffle("clicks", 0) == ShuffleDescription(
        "clicks",
        ["b", "c"],
        [[0], [0], [1]],
        1,
        [0],
    )
    registry.moves.record("clicks", {2: "b"}, "c", epoch=1, version=1)
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert rows(registry) == [1, 2, 3]


def test_a_move_is_refused_if_the_shuffle_has_changed(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    with pytest.raises(PlacementChangedError):
        registry.moves.record("clicks", {1: "c"}, "b", epoch=0, version=0)
    registry.unregister_server("a")
    with pytest.raises(PlacementChangedError):
        registry.moves.record("clicks", {1: "c"}, "b", epoch=1, version=0)
    assert placement(registry) == [("b",), ("b",), ("c",)]


@pytest.mark.parametrize(
    ("moves", "origin"),
    [
        ({1: "c"}, "a"),  # it is not there
        ({1: "b"}, "b"),
        ({1: "never there"}, "b"),
        ({3: "c"}, "b"),
        ({-2: "c"}, "b"),
        ({1: "c", 2: "a"}, "b"),
    ],
)
def test_an_invalid_move_is_refused(registry: Registry, moves: dict[int, str], origin: str) -> None:
    with pytest.raises(ProtocolError, match="cannot be moved from"):
        registry.moves.record("clicks", moves, origin, epoch=0, version=0)
    assert registry.describe_shuffle("clicks").version == 0


def test_a_replica_is_not_moved_to_a_server_that_has_one() -> None:
    registry = registry_with_clicks(replicas=2)
    with pytest.raises(ProtocolError):
        registry.moves.record("clicks", {0: "b"}, "a", epoch=0, version=0)
    registry.moves.record("clicks", {0: "c"}, "a", epoch=0, version=0)
    assert placement(registry)[0] == ("c", "b")


def test_a_partition_is_not_moved_to_a_server_with_a_stale_replica() -> None:
    """One block is damaged there, and the others would be there twice."""
    registry = registry_with_clicks(replicas=2)
    assert placement(registry) == [("a", "b"), ("c", "a"), ("c", "b")]
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("b", [0]))
    registry.drain_server("a")
    alone, targets = registry.moves.plan("clicks", "a")
    assert (alone, targets) == ([0], ["c"])
    with refused(ProtocolError):
        registry.moves.record("clicks", {0: "b"}, "a", epoch=1, version=1)
    registry.moves.record("clicks", {0: "c"}, "a", epoch=1, version=1)
    assert rows(registry) == [1, 2, 3]


def test_if_all_other_servers_have_a_stale_replica_the_plan_names_one() -> None:
    registry = registry_with_clicks(replicas=2)
    registry.unregister_server("c")
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("b", [0]))
    assert registry.moves.plan("clicks", "a")[1][:1] == ["b"]


def test_a_restarted_server_has_no_stale_replicas() -> None:
    registry = registry_with_clicks(replicas=2)
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("b", [0]))
    registry.register_server("b", "another")
    version = health(registry)[0]
    registry.moves.record("clicks", {0: "b"}, "a", epoch=1, version=version)
    assert rows(registry)[0] == 1


def test_nothing_is_moved_to_a_draining_server() -> None:
    registry = registry_with_clicks()
    commit(registry, FIRST, [1, 2, 3])
    before = placement(registry)
    assert before == [("a",), ("b",), ("c",)]
    for name in "ab":
        registry.drain_server(name)
    with pytest.raises(ProtocolError, match="cannot be moved"):
        registry.moves.record("clicks", {0: "b"}, "a", epoch=1, version=0)
    assert placement(registry) == before
