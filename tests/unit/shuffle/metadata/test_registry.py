"""A registry knows who won, and forgets a dropped shuffle whole."""

from __future__ import annotations

from functools import partial

import msgspec
import pyarrow as pa
import pytest

from mrflight.errors import (
    NoDataServersError,
    ProtocolError,
    SchemaMismatchError,
    ShuffleExistsError,
    ShuffleNotFoundError,
)
from mrflight.ids import MAX_MAPS, MAX_PARTITIONS, MapAttempt
from mrflight.shuffle.metadata.commit_log import NEVER
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.partition_info import MapCommit
from tests.support.placed_shuffles import registry_with_clicks
from tests.support.registries import OTHER_SCHEMA, SCHEMA, Clock, commit, commit_message, health
from tests.support.threads import run_threads

FIRST = MapAttempt(0, 0)
LEASE_S = 8.0


@pytest.fixture
def registry(clock: Clock) -> Registry:
    """Three servers, and a shuffle of two partitions."""
    return registry_with_clicks(partitions=2, clock=clock)


def winners(registry: Registry, since: int = 0) -> list[MapAttempt]:
    return [commit.source for commit in registry.commits("clicks", since)]


# Commits


def test_the_first_attempt_of_a_map_wins(registry: Registry) -> None:
    won = MapAttempt(4, 1, "a")
    assert commit(registry, won, [3, 4]) == won
    assert commit(registry, MapAttempt(4, 0, "b"), [9, 9]) == won
    assert commit(registry, MapAttempt(4, 1, "c"), [9, 9]) == won
    assert commit(registry, won, [3, 4]) == won
    schema, (first, second) = registry.partitions("clicks")
    assert schema == SCHEMA
    assert (first.rows, first.size_bytes, second.rows, second.size_bytes) == (3, 30, 4, 40)
    assert first.epoch == second.epoch == 1
    assert first.generation == second.generation == 0


def test_winners_come_in_order_of_their_commits(registry: Registry) -> None:
    sources = [MapAttempt(2, 0), MapAttempt(0, 1), MapAttempt(1, 0)]
    for source in sources:
        commit(registry, source, [1, 1])
    assert registry.commits("clicks", 0) == [MapCommit(source, NEVER, 0) for source in sources]
    assert winners(registry, 2) == sources[2:]
    assert winners(registry, 3) == winners(registry, 10**30) == []
    assert winners(registry, -1) == sources


def test_one_partition_can_be_asked_for(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2])
    _, (info,) = registry.partitions("clicks", only=1)
    assert (info.partition, info.rows) == (1, 2)
    assert len(info.locations) == 1


@pytest.mark.parametrize("only", [2, MAX_PARTITIONS, -1])
def test_a_partition_that_does_not_exist_is_refused(registry: Registry, only: int) -> None:
    with pytest.raises(ProtocolError, match="2 partitions"):
        registry.partitions("clicks", only)


def test_before_the_first_commit_there_is_no_schema(registry: Registry) -> None:
    schema, partitions = registry.partitions("clicks")
    assert schema is None
    assert [(info.epoch, info.rows) for info in partitions] == [(0, 0), (0, 0)]


def test_a_map_that_wrote_nothing_leaves_the_schema_open(registry: Registry) -> None:
    """A writer that was given no batch commits a schema without columns."""
    registry.commit_map(commit_message(MapAttempt(0, 0), [0, 0], schema=pa.schema([])))
    assert registry.partitions("clicks")[0] is None
    commit(registry, MapAttempt(1, 0), [1, 1])
    registry.commit_map(commit_message(MapAttempt(2, 0), [0, 0], schema=pa.schema([])))
    assert registry.partitions("clicks")[0] == SCHEMA


def test_a_map_of_another_schema_is_refused_and_can_still_be_won(registry: Registry) -> None:
    commit(registry, FIRST, [1, 1])
    with pytest.raises(SchemaMismatchError, match="map 1 of shuffle 'clicks'"):
        registry.commit_map(commit_message(MapAttempt(1, 0), [1, 1], schema=OTHER_SCHEMA))
    assert winners(registry) == [FIRST]
    assert commit(registry, MapAttempt(1, 1), [1, 1]) == MapAttempt(1, 1)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [([1], [1]), ([1, 1, 1], [1, 1, 1]), ([1, 1], [1]), ([-1, 1], [1, 1]), ([1, 1], [1, 2**48])],
)
def test_counts_that_cannot_be_are_refused_and_change_nothing(
    registry: Registry, rows: list[int], sizes: list[int]
) -> None:
    message = msgspec.structs.replace(commit_message(FIRST, rows), size_bytes=sizes)
    with pytest.raises(ProtocolError):
        registry.commit_map(message)
    assert winners(registry) == []
    assert registry.partitions("clicks")[0] is None


@pytest.mark.parametrize("source", [(-1, 0), (MAX_MAPS, 0), (0, -1), (0, 1000)])
def test_attempts_out_of_bounds_are_refused(registry: Registry, source: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="out of bounds"):
        commit(registry, MapAttempt(*source), [1, 1])


@pytest.mark.parametrize("version", [-1, 1, 10**30])
def test_a_version_that_never_was_is_refused(registry: Registry, version: int) -> None:
    with pytest.raises(ProtocolError, match=f"'clicks' has no version {version}"):
        commit(registry, FIRST, [1, 1], version)
    assert winners(registry) == []


def test_of_many_twins_at_once_one_wins(registry: Registry) -> None:
    answers: list[MapAttempt] = []

    def race(attempt: int) -> None:
        answers.extend(commit(registry, MapAttempt(m, attempt), [1, attempt]) for m in range(50))

    run_threads(partial(race, attempt) for attempt in range(4))
    won = winners(registry)
    assert sorted(source.map_id for source in won) == list(range(50))
    assert set(answers) == set(won)
    assert len(answers) == 4 * 50
    _, (first, second) = registry.partitions("clicks")
    assert (first.rows, second.rows) == (50, sum(source.attempt for source in won))


# Shuffles


@pytest.mark.parametrize(
    ("name", "partitions", "replicas"),
    [
        ("", 1, 1),
        ("a/b", 1, 1),
        ("new", 0, 1),
        ("new", -1, 1),
        ("new", MAX_PARTITIONS + 1, 1),
        ("new", 10**30, 1),
        ("new", 1, 0),
        ("new", 1, -1),
    ],
)
def test_shuffles_out_of_bounds_are_refused(
    registry: Registry, name: str, partitions: int, replicas: int
) -> None:
    with pytest.raises(ProtocolError):
        registry.put_shuffle(name, partitions, replicas)
    assert [state.id for state in registry.shuffles()] == ["clicks"]


def test_a_name_is_taken_once(registry: Registry) -> None:
    with pytest.raises(ShuffleExistsError, match="'clicks'"):
        registry.put_shuffle("clicks", 3)
    with pytest.raises(ShuffleExistsError, match="'clicks'"):
        registry.put_shuffle("clicks", 3, token="t")  # the first was made without one
    assert len(registry.describe_shuffle("clicks").placement.places) == 2


def test_who_asks_twice_with_one_token_gets_one_shuffle(registry: Registry) -> None:
    made = registry.put_shuffle("twice", 5, token="t")
    assert registry.put_shuffle("twice", 5, token="t") == made
    assert [state.id for state in registry.shuffles()] == ["clicks", "twice"]
    for token in ("", "other"):
        with pytest.raises(ShuffleExistsError, match="'twice'"):
            registry.put_shuffle("twice", 5, token=token)


def test_who_asks_twice_is_told_where_it_is_now(registry: Registry) -> None:
    registry.put_shuffle("twice", 3, token="t")
    for name in ("a", "b", "c"):
        registry.unregister_server(name)
    with pytest.raises(NoDataServersError, match="for 3 lost partitions of shuffle 'twice'"):
        registry.put_shuffle("twice", 3, token="t")
    registry.register_server("d")
    assert registry.put_shuffle("twice", 3, token="t") == [("d",)] * 3


def test_dropping_tells_who_held_it_and_forgets_it_whole(registry: Registry) -> None:
    commit(registry, FIRST, [5, 5])
    holders = {location for (location,) in registry.describe_shuffle("clicks").placement.places}
    assert registry.drop_shuffle("clicks") == sorted(holders)
    assert registry.shuffles() == []
    assert {server.partitions for server in registry.servers()} == {0}
    assert registry.heartbeat("a", ["clicks"], 0) == (True, ["clicks"])
    for ask in (
        lambda: registry.drop_shuffle("clicks"),
        lambda: registry.describe_shuffle("clicks"),
        lambda: registry.commits("clicks", 0),
        lambda: registry.partitions("clicks"),
        lambda: registry.health("clicks"),
        lambda: registry.report_loss("clicks", Loss("a", avoids=True)),
        lambda: registry.move_partitions("clicks", {0: "b"}, "a", 0, 0),
        lambda: commit(registry, FIRST, [5, 5]),
    ):
        with pytest.raises(ShuffleNotFoundError, match="'clicks'"):
            ask()
    registry.put_shuffle("clicks", 2)
    assert registry.commits("clicks", 0) == []


def test_a_shuffle_that_nobody_cares_for_is_dropped(registry: Registry, clock: Clock) -> None:
    registry.put_shuffle("leased", 1, lease_s=LEASE_S)
    for _ in range(3):  # as often as its driver asks for its health, it stays
        clock.now_s += LEASE_S
        for name in ("a", "b", "c"):
            registry.register_server(name)
        assert health(registry, "leased") == (0, [])
    clock.now_s += LEASE_S
    registry.partitions("leased")  # a reader is not the driver
    clock.now_s += 1
    assert registry.heartbeat("a", ["leased", "clicks"], 0)[1] == ["leased"]
    with pytest.raises(ShuffleNotFoundError, match="'leased'"):
        registry.health("leased")
    assert [state.id for state in registry.shuffles()] == ["clicks"]  # it has no lease
