"""A registry that is given a journal's events knows what its predecessor knew, however compact."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import JobFileError, JournalError, MrflightError
from mrflight.ids import MapAttempt
from mrflight.shuffle.event_journal import EventJournal
from mrflight.shuffle.events import (
    AnyEvent,
    MapCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleDropped,
    ShuffleMade,
    decode_event,
    encode_event,
)
from mrflight.shuffle.journal import Journal
from mrflight.shuffle.registry import Registry
from tests.support.journals import kept
from tests.support.registries import SCHEMA, TIMEOUT_S, Clock, commit, knowledge, resumed
from tests.support.threads import run_threads

HISTORY: list[AnyEvent] = [
    ServerJoined("a", "1"),
    ServerJoined("b", "1"),
    ShuffleMade("x", "", 1, None, ["a", "b"], [[0], [1]]),
    MapCommitted("x", 0, 0, "w", 0, SCHEMA.serialize().to_pybytes(), [1, 2], [10, 20]),
    PartitionsPlaced("x", [0], [["b"]], [0], avoided=["a"]),
    ServerGone("a"),
    ShuffleDropped("x"),
    ServerJoined("a", "2"),
    ShuffleMade("y", "t", 2, 3.5, ["a", "b"], [[0, 1]]),
    ServerDraining("b"),
    ShuffleMade("x", "", 1, None, ["a"], [[0]]),
    PartitionsPlaced("x", [0], [["b"]], [], moved=[0]),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def written(path: Path, events: list[AnyEvent]) -> None:
    with EventJournal(path) as journal:
        for event in events:
            journal.record(event)


def read(path: Path) -> list[AnyEvent]:
    with EventJournal(path) as journal:
        return list(journal.events())


@pytest.mark.parametrize("event", HISTORY, ids=lambda event: type(event).__name__)
def test_an_event_comes_back(event: AnyEvent) -> None:
    assert decode_event(encode_event(event)) == event


def test_events_come_back_in_their_order(path: Path) -> None:
    assert read(path) == []
    written(path, HISTORY[:5])
    written(path, HISTORY[5:])
    assert read(path) == HISTORY


def test_what_matters_is_of_what_is_there() -> None:
    assert kept(HISTORY) == HISTORY[1:2] + HISTORY[7:]
    assert kept(HISTORY[:7]) == [HISTORY[1]]
    assert kept(HISTORY[:6]) == HISTORY[1:5]
    assert kept([ServerJoined("a", "1"), ServerDraining("a"), ServerJoined("a", "2")]) == [
        ServerJoined("a", "2")
    ]


def test_a_server_may_have_the_name_of_a_shuffle() -> None:
    history: list[AnyEvent] = [ServerJoined("x", ""), ShuffleMade("x", "", 1, None, ["x"], [[0]])]
    assert kept([*history, ServerGone("x")]) == history[1:]
    assert kept([*history, ShuffleDropped("x")]) == history[:1]


Step = tuple[str, str, str, int]

steps = st.lists(
    st.tuples(
        st.sampled_from(["join", "drain", "leave", "put", "drop", "run", "lose", "wait"]),
        st.sampled_from("xy"),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=40,
)


def do(registry: Registry, clock: Clock, step: Step, position: int) -> None:
    """Something that may change a registry, or be refused."""
    kind, name, location, number = step
    match kind:
        case "join":
            registry.register_server(location, str(number))
        case "drain":
            registry.drain_server(location)
        case "leave":
            registry.unregister_server(location)
        case "put":
            registry.put_shuffle(name, number + 1, replicas=1 + number % 2)
        case "drop":
            registry.drop_shuffle(name)
        case "run":
            placement, version, *_ = registry.target(name, number)
            source = MapAttempt(number, 0, f"w{position}")
            commit(registry, source, [number] * len(placement), version, name)
        case "lose":
            registry.lose(name, location, None if number else [0], for_good=number > 1)
        case _:
            clock.now_s += TIMEOUT_S / 2


@settings(max_examples=300, derandomize=True)
@given(steps, st.lists(st.integers(0, 40), max_size=2))
def test_what_matters_makes_a_registry_that_knows_the_same(
    history: list[Step], compactions: list[int]
) -> None:
    clock, events = Clock(), list[AnyEvent]()
    registry = Registry(clock, TIMEOUT_S, lambda event: events.append(event))
    for location in "ab":
        registry.register_server(location)
    for position, step in enumerate(history):
        if position in compactions:
            events[:] = kept(events)
        try:
            do(registry, clock, step, position)
        except MrflightError:
            continue
    assert knowledge(resumed(events, clock)) == knowledge(registry)
    assert knowledge(resumed(kept(events), clock)) == knowledge(registry)
    assert kept(kept(events)) == kept(events)
    assert not any(isinstance(event, ShuffleDropped | ServerGone) for event in kept(events))


# Compaction of the file


def shuffles(count: int, alive: int) -> Iterator[AnyEvent]:
    """The events of so many shuffles one after the other, of which the last ones stay."""
    schema = SCHEMA.serialize().to_pybytes()
    yield ServerJoined("a", "1")
    for number in range(count):
        name = f"s{number}"
        yield ShuffleMade(name, "", 1, None, ["a"], [[0]] * 100)
        yield MapCommitted(name, 0, 0, "w", 0, schema, [number] * 100, [number] * 100)
        if number < count - alive:
            yield ShuffleDropped(name)


def test_a_journal_stays_small_whatever_happened(path: Path) -> None:
    events = list(shuffles(500, alive=2))
    everything = sum(len(encode_event(event)) for event in events)
    largest = 0
    with EventJournal(path, compact_bytes=10_000) as journal:
        for event in events:
            journal.record(event)
            largest = max(largest, journal.size_bytes)
        assert path.stat().st_size == journal.size_bytes
        events_now = list(journal.events())
    assert everything > 200_000
    assert largest < 13_000
    assert knowledge(resumed(events_now, Clock())) == knowledge(resumed(events, Clock()))
    assert kept(events_now) == kept(events)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_journal_whose_events_all_matter_is_not_rewritten_at_every_event(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = list(shuffles(400, alive=400))
    caplog.set_level("INFO", "mrflight.shuffle.event_journal")
    with EventJournal(path, compact_bytes=10_000) as journal:
        for event in events:
            journal.record(event)
        assert journal.size_bytes > 150_000
        assert list(journal.events()) == events
    assert [record.getMessage()[:15] for record in caplog.records] == ["the journal had"] * 3


def test_a_journal_that_was_left_large_is_compact_after_the_next_event(path: Path) -> None:
    written(path, list(shuffles(100, alive=0)))
    before = path.stat().st_size
    with EventJournal(path, compact_bytes=10_000) as journal:
        assert journal.size_bytes == before > 10_000
        journal.record(ServerDraining("a"))
        assert journal.size_bytes < 200
    assert read(path) == [ServerJoined("a", "1"), ServerDraining("a")]


def test_a_journal_that_cannot_be_rewritten_keeps_every_event(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder lies where the new file would be written."""
    events = list(shuffles(100, alive=0))
    with EventJournal(path, compact_bytes=10_000) as journal:
        (path.parent / f"{path.name}.new").mkdir()
        for event in events:
            journal.record(event)
        assert list(journal.events()) == events
        tries = len(caplog.records)
        assert 2 <= tries <= journal.size_bytes / 10_000
        assert all("until it has grown again" in record.message for record in caplog.records)
        (path.parent / f"{path.name}.new").rmdir()
        for event in shuffles(30, alive=0):
            journal.record(event)
        assert journal.size_bytes < 20_000
    assert len(caplog.records) == tries


def test_what_many_threads_record_is_there_after_any_compaction(path: Path) -> None:
    """Each makes shuffles of its own, and its last one stays."""

    def work(thread: int) -> None:
        for number in range(60):
            name = f"t{thread}-{number}"
            journal.record(ShuffleMade(name, "", 1, None, ["a"], [[0]] * 20))
            if number < 59:
                journal.record(ShuffleDropped(name))

    with EventJournal(path, compact_bytes=2_000) as journal:
        run_threads(partial(work, number) for number in range(4))
        left = kept(list(journal.events()))
        assert journal.size_bytes < 12_000
    names = sorted(event.id for event in left if isinstance(event, ShuffleMade))
    assert names == [f"t{thread}-59" for thread in range(4)]
    assert len(left) == 4


# What cannot be


def test_a_record_that_is_no_event_is_refused_with_its_journal(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(encode_event(HISTORY[0]))
        journal.append(b"\x81\xa5event\xa9Surprised")
    with (
        EventJournal(path) as events,
        pytest.raises(JournalError, match=r"journal: a record of the journal is no event: .*"),
    ):
        list(events.events())


def test_two_servers_do_not_share_a_journal(path: Path) -> None:
    with EventJournal(path), pytest.raises(JobFileError, match="belongs to another server"):
        EventJournal(path)


def test_what_cannot_be_recorded_is_said(path: Path) -> None:
    journal = EventJournal(path)
    registry = Registry(Clock(), TIMEOUT_S, journal.record)
    registry.register_server("a")
    journal.close()
    with pytest.raises(JournalError, match="it is closed"):
        registry.register_server("b")
    assert [server.location for server in registry.servers()] == ["a"]
    assert read(path) == [ServerJoined("a", "")]
