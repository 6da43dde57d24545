"""A registry knows who lives and who won, and forgets a dropped shuffle whole."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mrflight.errors import (
    NoDataServersError,
    ProtocolError,
    SchemaMismatchError,
    ShuffleExistsError,
    ShuffleNotFoundError,
)
from mrflight.ids import MAX_MAPS, MAX_PARTITIONS, MapAttempt
from mrflight.shuffle.registry import Registry

TIMEOUT_S = 10
SCHEMA = pa.schema({"url": pa.string()})
OTHER_SCHEMA = pa.schema({"url": pa.int64()})
FIRST = MapAttempt(0, 0)


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    """Three servers, and a shuffle of two partitions."""
    made = Registry(clock, TIMEOUT_S)
    for name in ("a", "b", "c"):
        made.register_server(name)
    made.put_shuffle("clicks", 2)
    return made


def commit(registry: Registry, source: MapAttempt, rows: list[int]) -> MapAttempt:
    return registry.commit_map("clicks", source, SCHEMA, rows, [10 * count for count in rows])


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


def test_winners_come_in_order_of_their_commits(registry: Registry) -> None:
    sources = [MapAttempt(2, 0), MapAttempt(0, 1), MapAttempt(1, 0)]
    for source in sources:
        commit(registry, source, [1, 1])
    assert registry.winners("clicks", 0) == sources
    assert registry.winners("clicks", 2) == sources[2:]
    assert registry.winners("clicks", 3) == registry.winners("clicks", 10**30) == []
    assert registry.winners("clicks", -1) == sources


def test_one_partition_can_be_asked_for(registry: Registry) -> None:
    commit(registry, FIRST, [1, 2])
    _, (info,) = registry.partitions("clicks", only=1)
    assert (info.partition, info.rows) == (1, 2)
    assert len(info.locations) == 1


@pytest.mark.parametrize("only", [2, MAX_PARTITIONS, -1])
def test_a_partition_that_is_not_there_is_refused(registry: Registry, only: int) -> None:
    with pytest.raises(ProtocolError, match="2 partitions"):
        registry.partitions("clicks", only)


def test_before_the_first_commit_there_is_no_schema(registry: Registry) -> None:
    schema, partitions = registry.partitions("clicks")
    assert schema is None
    assert [(info.epoch, info.rows) for info in partitions] == [(0, 0), (0, 0)]


def test_a_map_that_wrote_nothing_leaves_the_schema_open(registry: Registry) -> None:
    """A writer that was given no batch commits a schema without columns."""
    registry.commit_map("clicks", MapAttempt(0, 0), pa.schema([]), [0, 0], [0, 0])
    commit(registry, MapAttempt(1, 0), [1, 1])
    registry.commit_map("clicks", MapAttempt(2, 0), pa.schema([]), [0, 0], [0, 0])
    assert registry.partitions("clicks")[0] == SCHEMA


def test_a_map_of_another_schema_is_refused_and_can_still_be_won(registry: Registry) -> None:
    commit(registry, FIRST, [1, 1])
    with pytest.raises(SchemaMismatchError, match="map 1 of shuffle 'clicks'"):
        registry.commit_map("clicks", MapAttempt(1, 0), OTHER_SCHEMA, [1, 1], [1, 1])
    assert registry.winners("clicks", 0) == [FIRST]
    assert commit(registry, MapAttempt(1, 1), [1, 1]) == MapAttempt(1, 1)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [([1], [1]), ([1, 1, 1], [1, 1, 1]), ([1, 1], [1]), ([-1, 1], [1, 1]), ([1, 1], [1, 2**48])],
)
def test_counts_that_cannot_be_are_refused_and_change_nothing(
    registry: Registry, rows: list[int], sizes: list[int]
) -> None:
    with pytest.raises(ProtocolError):
        registry.commit_map("clicks", FIRST, SCHEMA, rows, sizes)
    assert registry.winners("clicks", 0) == []
    assert registry.partitions("clicks")[0] is None


@pytest.mark.parametrize("source", [(-1, 0), (MAX_MAPS, 0), (0, -1), (0, 1000)])
def test_attempts_out_of_bounds_are_refused(registry: Registry, source: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="out of bounds"):
        commit(registry, MapAttempt(*source), [1, 1])


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
    assert len(registry.placement("clicks")) == 2


def test_partitions_go_to_living_servers_only(registry: Registry, clock: Clock) -> None:
    clock.now_s = TIMEOUT_S
    registry.heartbeat("b", [], 0)
    clock.now_s = TIMEOUT_S + 1
    registry.put_shuffle("late", 4)
    assert registry.placement("late") == [("b",)] * 4
    assert [alive for _, alive, _, _ in registry.servers()] == [False, True, False]


def test_a_server_that_speaks_again_lives_again(registry: Registry, clock: Clock) -> None:
    clock.now_s = TIMEOUT_S + 1
    with pytest.raises(NoDataServersError):
        registry.put_shuffle("late", 1)
    assert registry.heartbeat("a", ["clicks"], 7) == (True, [])
    registry.put_shuffle("late", 1)
    assert registry.placement("late") == [("a",)]
    assert registry.servers()[0][3] == 7


def test_a_server_that_is_not_known_is_told_so(registry: Registry) -> None:
    assert registry.heartbeat("new", ["clicks", "gone"], 0) == (False, ["gone"])
    assert "new" not in [location for location, *_ in registry.servers()]


def test_a_server_that_left_gets_nothing_more(registry: Registry) -> None:
    registry.unregister_server("a")
    registry.unregister_server("never there")
    registry.put_shuffle("late", 4)
    assert {location for (location,) in registry.placement("late")} == {"b", "c"}


def test_the_next_shuffle_begins_where_the_least_is_held(registry: Registry) -> None:
    (first,), (second,) = registry.placement("clicks")
    registry.put_shuffle("next", 1)
    assert registry.placement("next")[0][0] not in (first, second)


def test_dropping_tells_who_held_it_and_forgets_it_whole(registry: Registry) -> None:
    commit(registry, FIRST, [5, 5])
    holders = {location for (location,) in registry.placement("clicks")}
    assert registry.drop_shuffle("clicks") == sorted(holders)
    assert registry.shuffles() == []
    assert {partitions for _, _, partitions, _ in registry.servers()} == {0}
    assert registry.heartbeat("a", ["clicks"], 0) == (True, ["clicks"])
    for ask in (
        lambda: registry.drop_shuffle("clicks"),
        lambda: registry.placement("clicks"),
        lambda: registry.winners("clicks", 0),
        lambda: registry.partitions("clicks"),
        lambda: commit(registry, FIRST, [5, 5]),
    ):
        with pytest.raises(ShuffleNotFoundError, match="'clicks'"):
            ask()
    registry.put_shuffle("clicks", 2)
    assert registry.winners("clicks", 0) == []


def test_of_many_twins_at_once_one_wins(registry: Registry) -> None:
    answers: list[MapAttempt] = []

    def race(attempt: int) -> None:
        answers.extend(commit(registry, MapAttempt(m, attempt), [1, attempt]) for m in range(50))

    threads = [threading.Thread(target=race, args=(attempt,)) for attempt in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = registry.winners("clicks", 0)
    assert sorted(source.map_id for source in winners) == list(range(50))
    _, (first, second) = registry.partitions("clicks")
    assert (first.rows, second.rows) == (50, sum(source.attempt for source in winners))


@dataclass
class ModelShuffle:
    placement: list[tuple[str, ...]]
    winners: list[MapAttempt] = field(default_factory=list)
    rows: Counter[int] = field(default_factory=Counter)


servers = st.sampled_from(["a", "b", "c", "d"])
names = st.sampled_from(["x", "y"])
sources = st.builds(MapAttempt, st.integers(0, 3), st.integers(0, 2), st.sampled_from(["", "a1"]))


class RegistryMachine(RuleBasedStateMachine):
    """The registry beside what a client remembers of its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.registry = Registry(self.clock, TIMEOUT_S)
        self.last_seen: dict[str, float] = {}
        self.shuffles: dict[str, ModelShuffle] = {}

    def living(self) -> list[str]:
        now = self.clock.now_s
        return [name for name, seen in self.last_seen.items() if now - seen <= TIMEOUT_S]

    def held(self) -> Counter[str]:
        return Counter(
            location
            for shuffle in self.shuffles.values()
            for locations in shuffle.placement
            for location in locations
        )

    @rule(seconds=st.sampled_from([1, 5, TIMEOUT_S, TIMEOUT_S + 1]))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @rule(server=servers)
    def register(self, server: str) -> None:
        living, held = self.living(), self.held()
        for other in list(self.last_seen):  # the dead that hold nothing are forgotten
            if other not in living and not held[other]:
                del self.last_seen[other]
        self.registry.register_server(server)
        self.last_seen[server] = self.clock.now_s

    @rule(server=servers)
    def unregister(self, server: str) -> None:
        self.registry.unregister_server(server)
        self.last_seen.pop(server, None)

    @rule(server=servers, held=st.lists(st.sampled_from(["x", "y", "z"]), unique=True))
    def heartbeat(self, server: str, held: list[str]) -> None:
        registered, drop = self.registry.heartbeat(server, held, 0)
        assert registered == (server in self.last_seen)
        assert drop == [name for name in held if name not in self.shuffles]
        if registered:
            self.last_seen[server] = self.clock.now_s

    @rule(name=names, partitions=st.integers(1, 9))
    def put(self, name: str, partitions: int) -> None:
        if name in self.shuffles:
            with pytest.raises(ShuffleExistsError):
                self.registry.put_shuffle(name, partitions)
        elif not self.living():
            with pytest.raises(NoDataServersError):
                self.registry.put_shuffle(name, partitions)
        else:
            placement = list(self.registry.put_shuffle(name, partitions).placement)
            counts = Counter(dict.fromkeys(self.living(), 0))
            counts.update(location for (location,) in placement)
            assert len(placement) == partitions
            assert sorted(counts) == sorted(self.living())
            assert max(counts.values()) - min(counts.values()) <= 1
            self.shuffles[name] = ModelShuffle(placement)

    @rule(name=names, source=sources, rows=st.integers(0, 2**40))
    def commit(self, name: str, source: MapAttempt, rows: int) -> None:
        shuffle = self.shuffles.get(name)
        if shuffle is None:
            with pytest.raises(ShuffleNotFoundError):
                self.registry.commit_map(name, source, SCHEMA, [rows], [rows])
            return
        counts = [rows + partition for partition in range(len(shuffle.placement))]
        won = {winner.map_id: winner for winner in shuffle.winners}
        answer = self.registry.commit_map(name, source, SCHEMA, counts, counts)
        assert answer == won.get(source.map_id, source)
        if source.map_id not in won:
            shuffle.winners.append(source)
            shuffle.rows.update(dict(enumerate(counts)))

    @precondition(lambda self: self.shuffles)
    @rule(name=names, source=sources, schema=st.sampled_from([SCHEMA, OTHER_SCHEMA]))
    def commit_wrongly(self, name: str, source: MapAttempt, schema: pa.Schema) -> None:
        shuffle = self.shuffles.get(name)
        if shuffle is None or any(winner.map_id == source.map_id for winner in shuffle.winners):
            return
        wrong_schema = schema == OTHER_SCHEMA and shuffle.winners
        counts = [1] * (len(shuffle.placement) + (not wrong_schema))
        with pytest.raises(SchemaMismatchError if wrong_schema else ProtocolError):
            self.registry.commit_map(name, source, schema, counts, counts)

    @rule(name=names)
    def drop(self, name: str) -> None:
        if name not in self.shuffles:
            with pytest.raises(ShuffleNotFoundError):
                self.registry.drop_shuffle(name)
            return
        placement = self.shuffles.pop(name).placement
        assert self.registry.drop_shuffle(name) == sorted({at for (at,) in placement})

    @invariant()
    def shuffles_are_as_promised(self) -> None:
        assert sorted(state.id for state in self.registry.shuffles()) == sorted(self.shuffles)
        for name, shuffle in self.shuffles.items():
            winners = self.registry.winners(name, 0)
            assert winners == shuffle.winners  # so that every epoch is a prefix of the next
            assert len({winner.map_id for winner in winners}) == len(winners)
            schema, partitions = self.registry.partitions(name)
            assert (schema is None) == (not winners)
            assert [info.locations for info in partitions] == shuffle.placement
            assert {info.epoch for info in partitions} == {len(winners)}
            assert [info.rows for info in partitions] == [
                shuffle.rows[partition] for partition in range(len(partitions))
            ]
            assert all(info.size_bytes == info.rows for info in partitions)

    @invariant()
    def servers_hold_what_was_placed(self) -> None:
        living, held = self.living(), self.held()
        assert self.registry.servers() == [
            (name, name in living, held[name], 0) for name in sorted(self.last_seen)
        ]


TestAnyHistory = RegistryMachine.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=40, derandomize=True)
