"""After a data server is lost, maps write its partitions again: each once, and no others."""

from __future__ import annotations

import pytest

from mrflight.errors import (
    InconsistentMapOutputError,
    JournalError,
    MapOutputLostError,
    NoDataServersError,
)
from mrflight.shuffle.metadata.commit_log import NEVER
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.partition_info import MapCommit
from mrflight.shuffle.wire.protocol import ShuffleDescription
from tests.support.clusters.placed_shuffles import (
    FIRST,
    OTHER,
    SECOND,
    THIRD,
    counting,
    placement,
    registry_with_clicks,
    rows,
)
from tests.support.clusters.registries import Clock, commit, health, knowledge, resumed
from tests.support.suite.messages import refused

# A server that is lost


def test_only_the_partitions_of_a_lost_server_are_missing(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    commit(registry, OTHER, [10, 20, 30])
    registry.unregister_server("b")
    assert health(registry) == (1, [0, 1])
    assert registry.describe_shuffle("clicks", 0) == ShuffleDescription(
        "clicks",
        ["a", "c"],
        [[0], [0], [1]],
        1,
        [1],
    )
    assert registry.describe_shuffle("clicks", 7).missing is None  # never committed
    for partition in (0, 2):
        assert counting(registry, partition) == [FIRST, OTHER]
    for only in (1, None):
        with refused(MapOutputLostError):
            registry.partitions("clicks", only)


def test_a_second_commit_counts_for_the_lost_partitions(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    commit(registry, OTHER, [10, 20, 30])
    registry.unregister_server("b")
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert health(registry) == (1, [1])
    with refused(MapOutputLostError):
        registry.partitions("clicks", 1)
    again = OTHER._replace(attempt=1)
    assert commit(registry, again, [10, 20, 30], version=1) == again
    assert health(registry) == (1, [])
    assert rows(registry) == [11, 22, 33]
    assert [counting(registry, p) for p in range(3)] == [
        [FIRST, OTHER],
        [SECOND, again],
        [FIRST, OTHER],
    ]
    assert registry.commits("clicks", 2) == [MapCommit(SECOND, 0, 1), MapCommit(again, 0, 1)]


def test_another_attempt_after_the_second_commit_does_not_count(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert commit(registry, THIRD, [1, 2, 3], version=1) == SECOND
    assert commit(registry, THIRD, [1, 2, 3], version=0) == SECOND
    assert rows(registry) == [1, 2, 3]
    assert len(registry.commits("clicks", 0)) == 2


def test_an_attempt_from_before_the_loss_counts_for_the_survivors(registry: Registry) -> None:
    assert registry.describe_shuffle("clicks", 0).version == 0
    registry.unregister_server("b")
    assert commit(registry, FIRST, [1, 2, 3], version=0) == FIRST
    assert health(registry) == (1, [0])
    assert counting(registry, 0) == counting(registry, 2) == [FIRST]
    assert registry.describe_shuffle("clicks", 0).missing == [1]
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert rows(registry) == [1, 2, 3]
    assert counting(registry, 1) == [SECOND]


def test_an_attempt_from_before_the_loss_changes_nothing_after_a_newer_one(
    registry: Registry,
) -> None:
    registry.unregister_server("b")
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert commit(registry, FIRST, [1, 2, 3], version=0) == SECOND
    assert [counting(registry, p) for p in range(3)] == [[SECOND]] * 3
    assert rows(registry) == [1, 2, 3]


def test_two_losses_in_a_row(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    registry.unregister_server("a")  # with partition 0, and 1 for the second time
    assert placement(registry) == [("c",)] * 3
    assert registry.describe_shuffle("clicks", 0).missing == [0, 1]
    assert health(registry) == (2, [0])
    assert commit(registry, THIRD, [1, 2, 3], version=2) == THIRD
    assert rows(registry) == [1, 2, 3]
    assert [counting(registry, p) for p in range(3)] == [[THIRD], [THIRD], [FIRST]]


def test_a_second_loss_while_a_map_is_written_again(
    registry: Registry,
) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    assert registry.describe_shuffle("clicks", 0) == ShuffleDescription(
        "clicks",
        ["a", "c"],
        [[0], [0], [1]],
        1,
        [1],
    )
    registry.unregister_server("a")
    assert commit(registry, SECOND, [1, 2, 3], version=1) == FIRST  # b's was lost again
    assert registry.commits("clicks", 1) == []
    registry.unregister_server("never there")
    assert registry.describe_shuffle("clicks", 0).missing == [0, 1]


def test_a_partition_that_comes_back_to_a_server_does_not_bring_its_old_blocks(
    registry: Registry,
) -> None:
    """The partition moves from a to b and back to a, whose process still has its first blocks."""
    registry.unregister_server("c")
    assert placement(registry) == [("a",), ("b",), ("a",)]
    commit(registry, FIRST, [1, 2, 3], version=1)
    registry.unregister_server("a")
    registry.register_server("a")
    assert placement(registry) == [("b",)] * 3
    assert commit(registry, SECOND, [1, 2, 3], version=2) == SECOND
    registry.unregister_server("b")
    assert placement(registry) == [("a",)] * 3
    late = FIRST._replace(writer="late")
    assert commit(registry, late, [1, 2, 3], version=1) == SECOND
    assert registry.describe_shuffle("clicks", 0).missing is None
    assert commit(registry, THIRD, [1, 2, 3], version=3) == THIRD
    assert [counting(registry, p) for p in range(3)] == [[THIRD]] * 3
    assert rows(registry) == [1, 2, 3]


def test_a_repeated_commit_request_is_not_a_second_commit(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    assert commit(registry, FIRST, [1, 2, 3]) == FIRST
    assert health(registry) == (1, [0])
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    for _ in range(2):
        assert commit(registry, FIRST, [1, 2, 3]) == FIRST
        assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert rows(registry) == [1, 2, 3]
    assert len(registry.commits("clicks", 0)) == 2


def test_a_second_commit_with_other_rows_is_refused(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    registry.unregister_server("b")
    with refused(InconsistentMapOutputError) as bad:
        commit(registry, SECOND, [2, 2, 2], version=1)
    assert not bad.value.retryable
    assert registry.commits("clicks", 1) == []
    assert health(registry) == (1, [0])


# No server left


def test_partitions_without_a_server_are_placed_when_one_joins(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    for name in "abc":
        registry.unregister_server(name)
    for ask in (registry.describe_shuffle, registry.partitions):
        with refused(NoDataServersError):
            ask("clicks")
    version, lost = health(registry)
    assert lost == [0]
    assert commit(registry, SECOND, [1, 2, 3], version=0) == FIRST
    registry.register_server("d")
    target = registry.describe_shuffle("clicks", 0)
    assert target.places == [("d",)] * 3
    assert target.version > version
    assert target.missing is None
    assert commit(registry, SECOND, [1, 2, 3], version=target.version) == SECOND
    assert rows(registry) == [1, 2, 3]


def test_a_commit_for_partitions_without_a_server_is_not_read(registry: Registry) -> None:
    for name in "abc":
        registry.unregister_server(name)
    unplaced_version, _ = health(registry)
    assert commit(registry, FIRST, [1, 2, 3], version=unplaced_version) == FIRST
    registry.register_server("d")
    with pytest.raises(MapOutputLostError, match="partition 0"):
        registry.partitions("clicks")
    assert registry.describe_shuffle("clicks", 0).missing is None


# Blocks that cannot be used, on a live server


def test_a_reported_server_is_not_used_again_by_this_shuffle(registry: Registry) -> None:
    registry.put_shuffle("other", 3)
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("b", avoids=True))
    assert placement(registry) == [("a",), ("a",), ("c",)]
    assert health(registry) == (1, [0])
    assert not registry.report_loss("clicks", Loss("b", avoids=True))
    assert health(registry) == (1, [0])
    assert registry.report_loss("clicks", Loss("a", avoids=True))
    assert registry.report_loss("clicks", Loss("c", avoids=True))
    with pytest.raises(NoDataServersError):
        registry.describe_shuffle("clicks")
    assert {at for (at,) in registry.describe_shuffle("other").places} == {"a", "b", "c"}
    assert health(registry, "other") == (0, [])
    registry.register_server("d")
    assert placement(registry) == [("d",)] * 3


def test_a_reported_server_without_partitions_is_avoided(registry: Registry) -> None:
    registry.register_server("d")
    assert registry.report_loss("clicks", Loss("d", avoids=True))
    assert not registry.report_loss("clicks", Loss("d", avoids=True))
    for name in "abc":
        registry.unregister_server(name)
    with pytest.raises(NoDataServersError):
        registry.describe_shuffle("clicks")


def test_a_reported_partition_is_written_again(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("b", [1]))
    assert not registry.report_loss("clicks", Loss("b", [0, 2, 99, -1]))
    assert not registry.report_loss("clicks", Loss("never there", [1]))
    assert health(registry) == (1, [0])
    assert registry.describe_shuffle("clicks", 0) == ShuffleDescription(
        "clicks",
        ["a", "c"],
        [[0], [0], [1]],
        1,
        [1],
    )
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert [counting(registry, p) for p in range(3)] == [[FIRST], [SECOND], [FIRST]]
    assert rows(registry) == [1, 2, 3]


def test_a_reported_partition_stays_on_its_server_if_there_is_no_other() -> None:
    """The server works except for one damaged block."""
    registry = registry_with_clicks(servers="a")
    commit(registry, FIRST, [1, 2, 3])
    assert registry.report_loss("clicks", Loss("a", [1]))
    assert registry.describe_shuffle("clicks", 0) == ShuffleDescription(
        "clicks",
        ["a"],
        [[0]] * 3,
        1,
        [1],
    )
    assert commit(registry, SECOND, [1, 2, 3], version=1) == SECOND
    assert [counting(registry, p) for p in range(3)] == [[FIRST], [SECOND], [FIRST]]


# Events that cannot be recorded


@pytest.mark.parametrize("works", range(4))
def test_a_loss_that_was_recorded_in_part_is_completed_later(works: int) -> None:
    """The server held two shuffles, so there are three events: two placements and its removal."""
    events: list[AnyEvent] = []
    room = [100]

    def record(event: AnyEvent) -> None:
        if len(events) >= room[0]:
            raise JournalError("the disk is full")
        events.append(event)

    registry = registry_with_clicks(record=record)
    registry.put_shuffle("other", 3)
    commit(registry, FIRST, [1, 2, 3])
    room[0] = len(events) + works
    if works < 3:
        with pytest.raises(JournalError):
            registry.unregister_server("b")
        assert knowledge(resumed(events, Clock())) == knowledge(registry)
        room[0] = 100
    again = resumed(events, Clock())
    for each in (registry, again):
        each.unregister_server("b")
        assert each.incarnation("b") is None
        for name in ("clicks", "other"):
            assert all("b" not in places for places in each.describe_shuffle(name).places)
        assert health(each) == (1, [0])
        assert each.describe_shuffle("clicks", 0).missing == [1]
    assert knowledge(again) == knowledge(registry)


def test_a_commit_that_cannot_be_recorded_changes_nothing() -> None:
    def record(event: AnyEvent) -> None:
        if full:
            raise JournalError("the disk is full")

    full = False
    registry = registry_with_clicks(record=record)
    before = knowledge(registry)
    full = True
    with pytest.raises(JournalError):
        commit(registry, FIRST, [1, 2, 3])
    assert knowledge(registry) == before
    full = False
    assert commit(registry, FIRST, [1, 2, 3]) == FIRST
    assert registry.commits("clicks", 0) == [MapCommit(FIRST, NEVER, 0)]
    assert rows(registry) == [1, 2, 3]
