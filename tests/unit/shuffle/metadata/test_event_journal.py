"""A registry that is given a journal's events knows what its predecessor knew, however compact."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import JobFileError, JournalError, MrflightError
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.event_journal import EventJournal
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    MapCommitted,
    MapsCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
    decode_event,
    encode_event,
)
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from tests.support.journals import counted, kept, recorded, recorded_in
from tests.support.registries import SCHEMA, TIMEOUT_S, Clock, commit, knowledge, resumed

ENCODED = SCHEMA.serialize().to_pybytes()

HISTORY: list[AnyEvent] = [
    ServerJoined("a", "1"),
    ServerJoined("b", "1"),
    ShuffleCreated("x", "", 1, None, ["a", "b"], [[0], [1]]),
    MapCommitted("x", 0, 0, "w", 0, ENCODED, counted([1, 2]), counted([10, 20])),
    PartitionsPlaced("x", [0], [["b"]], [0], avoided=["a"]),
    ServerGone("a"),
    ShuffleDropped("x"),
    ServerJoined("a", "2"),
    ShuffleCreated("y", "t", 2, 3.5, ["a", "b"], [[0, 1]]),
    ServerDraining("b"),
    ShuffleCreated("x", "", 1, None, ["a"], [[0]]),
    PartitionsPlaced("x", [0], [["b"]], [], moved=[0]),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


SUM = MapsCommitted(
    "x",
    b"",
    [(0, 0, "w", -1, 0, 2**64 - 1), (1, 3, "", 0, 2, 0)],
    counted([2**40, 0]),
    counted([0, 7]),
)


@pytest.mark.parametrize("event", [*HISTORY, SUM], ids=lambda event: type(event).__name__)
def test_an_event_comes_back(event: AnyEvent) -> None:
    assert decode_event(encode_event(event)) == event


def test_events_come_back_in_their_order(path: Path) -> None:
    assert recorded_in(path) == []
    recorded(path, HISTORY[:5])
    recorded(path, HISTORY[5:])
    assert recorded_in(path) == HISTORY


def test_what_matters_is_of_what_is_there() -> None:
    assert kept(HISTORY) == HISTORY[1:2] + HISTORY[7:]
    assert kept(HISTORY[:7]) == [HISTORY[1]]
    assert kept(HISTORY[:6]) == HISTORY[1:5]
    assert kept([ServerJoined("a", "1"), ServerDraining("a"), ServerJoined("a", "2")]) == [
        ServerJoined("a", "2")
    ]


def test_a_server_may_have_the_name_of_a_shuffle() -> None:
    history: list[AnyEvent] = [
        ServerJoined("x", ""),
        ShuffleCreated("x", "", 1, None, ["x"], [[0]]),
    ]
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
            target = registry.describe_shuffle(name, number)
            source = MapAttempt(number, 0, f"w{position}")
            commit(registry, source, [number] * len(target.placement.places), target.version, name)
        case "lose":
            registry.report_loss(name, Loss(location, None if number else [0], avoids=number > 1))
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


# What cannot be


def test_a_record_that_is_no_event_is_refused_with_its_journal(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(encode_event(HISTORY[0]))
        journal.append(b"\x81\xa5event\xa9Surprised")
    with (
        EventJournal(path) as events,
        pytest.raises(JournalError, match=r"journal: a record of the journal is not a valid event"),
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
    assert recorded_in(path) == [ServerJoined("a", "")]
