"""The journal of a metadata server: it keeps what matters, and takes no other file for its own."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import InconsistentMapOutputError, JournalError, MrflightError
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    CommitLeaseEnded,
    CommitLeaseGranted,
    CountsRestored,
    MapCommitted,
    ServerDraining,
    ServerGone,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
    VersionForgotten,
    VersionRecorded,
    decode_event,
    encode_event,
)
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS
from tests.support.clusters.journals import ENCODED, HISTORY, encoded, events_in, record_all, sums
from tests.support.clusters.registries import (
    SCHEMA,
    TIMEOUT_S,
    Clock,
    commit,
    commit_message,
    knowledge,
    resumed,
)
from tests.support.commands.threads import run_threads
from tests.support.suite.examples import some_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_a_new_journal_is_empty_and_private(path: Path) -> None:
    with Journal(path) as journal:
        assert list(journal.events()) == []
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("event", HISTORY, ids=lambda event: type(event).__name__)
def test_an_event_is_decoded_as_it_was_encoded(event: AnyEvent) -> None:
    assert decode_event(encode_event(event)) == event


def test_events_come_back_in_their_order_when_it_is_opened_again(path: Path) -> None:
    record_all(path, HISTORY[7:9])
    record_all(path, HISTORY[9:])
    assert events_in(path) == [*HISTORY[7:], sums("y", [0]), sums("x", [0])]


SHUFFLE_X = ShuffleCreated("x", "", 1, None, ["x"], [[0]])
LEASES = [CommitLeaseGranted(table, number, "job", 1.0) for number, table in enumerate("tuv", 1)]


@pytest.mark.parametrize(
    ("events", "left"),
    [
        (HISTORY[:7], [HISTORY[1]]),
        (HISTORY, [HISTORY[1], *HISTORY[7:], sums("y", [0]), sums("x", [0])]),
        ([HISTORY[0], ServerDraining("a"), HISTORY[7]], [HISTORY[7]]),
        # A server may have the name of a shuffle.
        ([ServerJoined("x", ""), SHUFFLE_X, ServerGone("x")], [SHUFFLE_X, sums("x", [0])]),
        ([ServerJoined("x", ""), SHUFFLE_X, ShuffleDropped("x")], [ServerJoined("x", "")]),
        # The last lease number is kept, and no other lease that has ended.
        ([*LEASES, CommitLeaseEnded("u", 2)], [LEASES[0], LEASES[2], CommitLeaseEnded("u", 2)]),
        (
            [*LEASES, CommitLeaseEnded("v", 3), CommitLeaseEnded("t", 1)],
            [LEASES[1], CommitLeaseEnded("v", 3)],
        ),
        (
            [VersionRecorded("t", version, "d", "job") for version in (1, 2, 1)]
            + [VersionForgotten("t", 2)],
            [VersionRecorded("t", 1, "d", "job")],
        ),
        (
            [VersionRecorded("t", version, "d", "job") for version in range(20)],
            [VersionRecorded("t", version, "d", "job") for version in range(20 - MAX_VERSIONS, 20)],
        ),
    ],
)
def test_events_that_no_longer_matter_are_deleted(
    path: Path, events: list[AnyEvent], left: list[AnyEvent]
) -> None:
    record_all(path, events)
    assert events_in(path) == left


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
    """Change a registry, unless it refuses."""
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
            commit(registry, source, [number] * len(target.places), target.version, name)
        case "lose":
            registry.report_loss(name, Loss(location, None if number else [0], avoids=number > 1))
        case _:
            clock.now_s += TIMEOUT_S / 2


@settings(max_examples=some_of(100), derandomize=True)
@given(steps)
def test_a_registry_that_replays_a_journal_knows_the_same(
    tmp_path_factory: pytest.TempPathFactory, history: list[Step]
) -> None:
    path = tmp_path_factory.mktemp("j") / "journal"
    clock = Clock()
    with Journal(path) as journal:
        registry = Registry(clock, TIMEOUT_S, journal.record)
        for location in "ab":
            registry.register_server(location)
        for position, step in enumerate(history):
            try:
                do(registry, clock, step, position)
            except MrflightError:
                continue
    assert knowledge(resumed(events_in(path), clock)) == knowledge(registry)


def shuffles(count: int, alive: int) -> Iterator[AnyEvent]:
    """Yield the events of this many shuffles one after the other, of which the last are kept."""
    yield ServerJoined("a", "1")
    for number in range(count):
        name = f"s{number}"
        yield ShuffleCreated(name, "", 1, None, ["a"], [[0]] * 100)
        counts = encoded([number] * 100)
        yield MapCommitted(name, 0, 0, "w", -1, 0, 0, ENCODED, counts, counts)
        if number < count - alive:
            yield ShuffleDropped(name)


def test_a_journal_stays_small_whatever_happened(path: Path) -> None:
    events = list(shuffles(300, alive=2))
    assert sum(len(encode_event(event)) for event in events) > 120_000
    record_all(path, events)
    assert path.stat().st_size < 70_000
    assert knowledge(resumed(events_in(path), Clock())) == knowledge(resumed(events, Clock()))
    assert os.listdir(path.parent) == [path.name]


def test_the_counts_of_commits_are_kept_as_sums(path: Path) -> None:
    """This holds after a loss as well, when maps count again for the lost partition only."""
    partitions = 1_000
    with Journal(path) as journal:
        registry = Registry(Clock(), TIMEOUT_S, journal.record)
        for location in "ab":
            registry.register_server(location)
        for name in "xy":
            registry.put_shuffle(name, partitions)
        for map_id, name in itertools.product(range(100), "xy"):
            rows = [map_id * 7 % 13 + partition for partition in range(partitions)]
            source = MapAttempt(map_id, 0, f"w{map_id}")
            schema = SCHEMA if map_id else pa.schema([])
            registry.commit_map(commit_message(source, rows, 0, name, schema))
        registry.report_loss("x", Loss("a", [0]))
        for map_id in (3, 5, 4):
            rows = [map_id * 7 % 13 + partition for partition in range(partitions)]
            commit(registry, MapAttempt(map_id, 1, "w"), rows, 1, "x")
    assert path.stat().st_size < 150_000
    left = events_in(path)
    assert [type(event) for event in left[-2:]] == [CountsRestored] * 2
    again = resumed(left, Clock())
    assert knowledge(again) == knowledge(registry)
    with pytest.raises(InconsistentMapOutputError):  # it still knows what each map has sent
        commit(again, MapAttempt(6, 1, "w"), [1] * partitions, 1, "x")


def test_many_threads_record_at_once(path: Path) -> None:
    def work(thread: int) -> None:
        for number in range(40):
            journal.record(ServerJoined(f"{thread}", str(number)))
            journal.record(ServerDraining(f"{thread}-{number}"))

    with Journal(path) as journal:
        run_threads(partial(work, number) for number in range(4))
    left = events_in(path)
    assert {event for event in left if isinstance(event, ServerJoined)} == {
        ServerJoined(f"{thread}", "39") for thread in range(4)
    }
    for thread in range(4):
        drained = [e.location for e in left if isinstance(e, ServerDraining)]
        of_thread = [name for name in drained if name.startswith(f"{thread}-")]
        assert of_thread == [f"{thread}-{number}" for number in range(40)]


def test_closing_releases_everything(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    journal = Journal(path)
    registry = Registry(Clock(), TIMEOUT_S, journal.record)
    registry.register_server("a")
    journal.close()
    journal.close()
    assert set(os.listdir("/proc/self/fd")) <= before
    with pytest.raises(JournalError, match="it is closed"):
        registry.register_server("b")
    assert [server.location for server in registry.overview.servers()] == ["a"]
    assert events_in(path) == [ServerJoined("a", "")]
