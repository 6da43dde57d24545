"""The commits and shuffles of a registry: which attempt wins, what is refused, what is dropped."""

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
from tests.support.clusters.placed_shuffles import registry_with_clicks
from tests.support.clusters.registries import (
    OTHER_SCHEMA,
    SCHEMA,
    Clock,
    commit,
    commit_message,
    health,
)
from tests.support.commands.threads import run_threads
from tests.support.suite.messages import refused

FIRST = MapAttempt(0, 0)
LEASE_S = 8.0


@pytest.fixture
def registry(clock: Clock) -> Registry:
    """Return a registry with three servers and a shuffle of two partitions."""
    return registry_with_clicks(partitions=2, clock=clock)


def committed(registry: Registry, since: int = 0) -> list[MapAttempt]:
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


def test_commits_are_listed_in_order_of_their_commits(registry: Registry) -> None:
    sources = [MapAttempt(2, 0), MapAttempt(0, 1), MapAttempt(1, 0)]
    for source in sources:
        commit(registry, source, [1, 1])
    assert registry.commits("clicks", 0) == [MapCommit(source, NEVER, 0) for source in sources]
    assert committed(registry, 2) == sources[2:]
    assert committed(registry, 3) == committed(registry, 10**30) == []
    assert committed(registry, -1) == sources


def test_a_single_partition_can_be_requested(registry: Registry) -> None:
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


def test_a_map_without_batches_does_not_set_the_schema(registry: Registry) -> None:
    """Its writer commits a schema without columns."""
    registry.commit_map(commit_message(MapAttempt(0, 0), [0, 0], schema=pa.schema([])))
    assert registry.partitions("clicks")[0] is None
    commit(registry, MapAttempt(1, 0), [1, 1])
    registry.commit_map(commit_message(MapAttempt(2, 0), [0, 0], schema=pa.schema([])))
    assert registry.partitions("clicks")[0] == SCHEMA


def test_a_commit_with_another_schema_is_refused(
    registry: Registry,
) -> None:
    commit(registry, FIRST, [1, 1])
    with refused(SchemaMismatchError):
        registry.commit_map(commit_message(MapAttempt(1, 0), [1, 1], schema=OTHER_SCHEMA))
    assert committed(registry) == [FIRST]
    assert commit(registry, MapAttempt(1, 1), [1, 1]) == MapAttempt(1, 1)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [([1], [1]), ([1, 1, 1], [1, 1, 1]), ([1, 1], [1]), ([-1, 1], [1, 1]), ([1, 1], [1, 2**48])],
)
def test_invalid_counts_are_refused_and_change_nothing(
    registry: Registry, rows: list[int], sizes: list[int]
) -> None:
    message = msgspec.structs.replace(commit_message(FIRST, rows), size_bytes=sizes)
    with pytest.raises(ProtocolError):
        registry.commit_map(message)
    assert committed(registry) == []
    assert registry.partitions("clicks")[0] is None


@pytest.mark.parametrize("source", [(-1, 0), (MAX_MAPS, 0), (0, -1), (0, 1000)])
def test_attempts_out_of_bounds_are_refused(registry: Registry, source: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="out of bounds"):
        commit(registry, MapAttempt(*source), [1, 1])


@pytest.mark.parametrize("version", [-1, 1, 10**30])
def test_an_unknown_version_is_refused(registry: Registry, version: int) -> None:
    with refused(ProtocolError):
        commit(registry, FIRST, [1, 1], version)
    assert committed(registry) == []


def test_one_of_many_concurrent_attempts_wins(registry: Registry) -> None:
    answers: list[MapAttempt] = []

    def race(attempt: int) -> None:
        answers.extend(commit(registry, MapAttempt(m, attempt), [1, attempt]) for m in range(50))

    run_threads(partial(race, attempt) for attempt in range(4))
    winners = committed(registry)
    assert sorted(source.map_id for source in winners) == list(range(50))
    assert set(answers) == set(winners)
    assert len(answers) == 4 * 50
    _, (first, second) = registry.partitions("clicks")
    assert (first.rows, second.rows) == (50, sum(source.attempt for source in winners))


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
    assert [state.id for state in registry.overview.shuffles()] == ["clicks"]


def test_a_name_that_is_in_use_is_refused(registry: Registry) -> None:
    with pytest.raises(ShuffleExistsError, match="'clicks'"):
        registry.put_shuffle("clicks", 3)
    with pytest.raises(ShuffleExistsError, match="'clicks'"):
        registry.put_shuffle("clicks", 3, token="t")  # the first has no token
    assert len(registry.describe_shuffle("clicks").places) == 2


def test_a_repeated_request_with_the_same_token_gets_the_same_shuffle(registry: Registry) -> None:
    first = registry.put_shuffle("twice", 5, token="t")
    assert registry.put_shuffle("twice", 5, token="t") == first
    assert [state.id for state in registry.overview.shuffles()] == ["clicks", "twice"]
    for token in ("", "other"):
        with pytest.raises(ShuffleExistsError, match="'twice'"):
            registry.put_shuffle("twice", 5, token=token)


def test_a_repeated_request_gets_the_present_placement(registry: Registry) -> None:
    registry.put_shuffle("twice", 3, token="t")
    for name in ("a", "b", "c"):
        registry.unregister_server(name)
    with refused(NoDataServersError):
        registry.put_shuffle("twice", 3, token="t")
    registry.register_server("d")
    assert registry.put_shuffle("twice", 3, token="t") == [("d",)] * 3


def test_dropping_a_shuffle_returns_its_servers_and_removes_all_of_it(registry: Registry) -> None:
    commit(registry, FIRST, [5, 5])
    servers = {location for (location,) in registry.describe_shuffle("clicks").places}
    assert registry.drop_shuffle("clicks") == sorted(servers)
    assert registry.overview.shuffles() == []
    assert {server.partitions for server in registry.overview.servers()} == {0}
    assert registry.heartbeat("a", ["clicks"], 0) == (True, ["clicks"])
    for ask in (
        lambda: registry.drop_shuffle("clicks"),
        lambda: registry.describe_shuffle("clicks"),
        lambda: registry.commits("clicks", 0),
        lambda: registry.partitions("clicks"),
        lambda: registry.health("clicks"),
        lambda: registry.report_loss("clicks", Loss("a", avoids=True)),
        lambda: registry.moves.record("clicks", {0: "b"}, "a", 0, 0),
        lambda: commit(registry, FIRST, [5, 5]),
    ):
        with pytest.raises(ShuffleNotFoundError, match="'clicks'"):
            ask()
    registry.put_shuffle("clicks", 2)
    assert registry.commits("clicks", 0) == []


def test_a_shuffle_is_dropped_when_its_lease_ends(registry: Registry, clock: Clock) -> None:
    registry.put_shuffle("leased", 1, lease_s=LEASE_S)
    for _ in range(3):  # each health request of the driver renews the lease
        clock.now_s += LEASE_S
        for name in ("a", "b", "c"):
            registry.register_server(name)
        assert health(registry, "leased") == (0, [])
    clock.now_s += LEASE_S
    registry.partitions("leased")  # the request of a reader does not renew it
    clock.now_s += 1
    assert registry.heartbeat("a", ["leased", "clicks"], 0)[1] == ["leased"]
    with pytest.raises(ShuffleNotFoundError, match="'leased'"):
        registry.health("leased")
    assert [state.id for state in registry.overview.shuffles()] == ["clicks"]  # it has no lease
