"""A journal of events is compacted when it has grown, and takes events meanwhile."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import InconsistentMapOutputError
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.event_journal import EventJournal
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    MapCommitted,
    MapsCommitted,
    PartitionsPlaced,
    ServerDraining,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
    encode_event,
)
from mrflight.shuffle.metadata.reassignment import Loss
from tests.support.journals import counted, kept, recorded, recorded_in
from tests.support.registries import SCHEMA, Clock, commit, knowledge, resumed
from tests.support.threads import WAIT_S, run_threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def shuffles(count: int, alive: int) -> Iterator[AnyEvent]:
    """The events of so many shuffles one after the other, of which the last ones stay."""
    schema = SCHEMA.serialize().to_pybytes()
    yield ServerJoined("a", "1")
    for number in range(count):
        name = f"s{number}"
        yield ShuffleCreated(name, "", 1, None, ["a"], [[0]] * 100)
        counts = counted([number] * 100)
        yield MapCommitted(name, 0, 0, "w", 0, schema, counts, counts)
        if number < count - alive:
            yield ShuffleDropped(name)


def test_a_journal_stays_small_whatever_happened(path: Path) -> None:
    events = list(shuffles(500, alive=2))
    assert sum(len(encode_event(event)) for event in events) > 200_000
    largest = max(
        recorded(path, events[at : at + 30], compact_bytes=10_000)
        for at in range(0, len(events), 30)
    )
    assert largest < 16_000
    events_now = recorded_in(path)
    assert knowledge(resumed(events_now, Clock())) == knowledge(resumed(events, Clock()))
    assert kept(events_now) == kept(events)
    assert os.listdir(path.parent) == [path.name]


def test_a_journal_whose_events_all_matter_is_not_rewritten_at_every_event(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = list(shuffles(400, alive=400))
    caplog.set_level("INFO", "mrflight.shuffle.metadata.event_journal")
    assert recorded(path, events, compact_bytes=10_000) > 150_000
    assert recorded_in(path) == events
    said = [record.getMessage()[:15] for record in caplog.records]
    assert said in [["the journal had"] * times for times in (1, 2, 3)]


def commits_of(name: str, maps: int) -> Iterator[AnyEvent]:
    """The first of another schema, which has no columns; each sends something else."""
    for number in range(maps):
        schema = (SCHEMA if number else pa.schema([])).serialize().to_pybytes()
        counts = rows_of(number), counted([0, 9] * 50)
        yield MapCommitted(name, number, 0, f"w{number}", 0, schema, *counts, "r")


def rows_of(map_id: int) -> bytes:
    """What a map of `commits_of` sends to each partition."""
    return counted([map_id * 7 % 13 + partition for partition in range(100)])


def test_the_commits_of_a_shuffle_become_one(path: Path) -> None:
    """Up to a loss, and from there on: what is sent again counts for what was lost alone."""
    made = [ServerJoined("a", "1"), ServerJoined("b", "1")]
    made += [ShuffleCreated(name, "", 1, None, ["a", "b"], [[0], [1]] * 50) for name in "xy"]
    both = zip(commits_of("x", 200), commits_of("y", 200), strict=True)
    events = [*made, *itertools.chain.from_iterable(both)]
    events += [PartitionsPlaced("x", [0], [["b"]], [0])]
    schema = SCHEMA.serialize().to_pybytes()
    for number in (3, 5, 4):
        counts = rows_of(number), counted([5] * 100)
        events += [MapCommitted("x", number, 1, "w", 1, schema, *counts, "r")]
    assert recorded(path, events) > 100_000
    assert recorded(path, [ServerDraining("b")], compact_bytes=10_000) < 20_000
    events += [ServerDraining("b")]
    left = recorded_in(path)
    assert [type(event) for event in left[4:]] == [
        *(MapsCommitted, MapsCommitted, PartitionsPlaced, MapsCommitted, ServerDraining)
    ]
    assert knowledge(resumed(left, Clock())) == knowledge(resumed(events, Clock()))
    assert kept(left) == left


def test_commits_go_on_where_those_before_have_become_one(path: Path) -> None:
    made = [ServerJoined("a", "1"), ShuffleCreated("x", "", 1, None, ["a"], [[0]] * 100)]
    before = [*made, *commits_of("x", 150)]
    after = list(commits_of("x", 300))[150:]
    recorded(path, before, compact_bytes=10_000)
    recorded(path, after[:-1], compact_bytes=10_000)
    recorded(path, after[-1:], compact_bytes=1_000)  # which it is above, however far it came
    left = recorded_in(path)
    assert [type(event) for event in left] == [ServerJoined, ShuffleCreated, MapsCommitted]
    registry = resumed(left, Clock())
    assert knowledge(registry) == knowledge(resumed([*before, *after], Clock()))
    registry.report_loss("x", Loss("a", avoids=True))
    with pytest.raises(InconsistentMapOutputError):
        commit(registry, MapAttempt(5, 1, "w"), [1] * 100, 1, "x")


def test_a_journal_that_was_left_large_is_compact_after_the_next_event(path: Path) -> None:
    assert recorded(path, shuffles(100, alive=0)) > 10_000
    assert recorded(path, [ServerDraining("a")], compact_bytes=10_000) < 200
    assert recorded_in(path) == [ServerJoined("a", "1"), ServerDraining("a")]


def test_a_journal_that_was_left_large_is_left_so_when_nothing_happens(path: Path) -> None:
    """It would hold up who ends the server."""
    before = recorded(path, shuffles(100, alive=0))
    assert recorded(path, [], compact_bytes=10_000) == before


def test_a_journal_that_cannot_be_rewritten_keeps_every_event(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder lies where the new file would be written."""
    events = list(shuffles(100, alive=0))
    with EventJournal(path, compact_bytes=10_000) as journal:
        (path.parent / f"{path.name}.new").mkdir()
        for event in events:
            journal.record(event)
    assert 1 <= len(caplog.records) <= path.stat().st_size / 10_000
    assert all("until it has grown again" in record.message for record in caplog.records)
    (path.parent / f"{path.name}.new").rmdir()
    assert recorded_in(path) == events
    assert recorded(path, shuffles(1, alive=0), compact_bytes=10_000) < 1_000


def test_events_are_recorded_while_the_new_file_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync of that file is held up until they are."""
    sync, begun, may_go_on = os.fsync, threading.Event(), threading.Event()

    def held_up(file: int) -> None:
        if threading.current_thread().name == "compaction":
            begun.set()
            assert may_go_on.wait(WAIT_S)
        sync(file)

    recorded(path, shuffles(20, alive=0))
    meanwhile = list(shuffles(5, alive=5))[1:]
    monkeypatch.setattr(os, "fsync", held_up)
    with EventJournal(path, compact_bytes=10_000) as journal:
        journal.record(ServerJoined("b", "1"))
        assert begun.wait(WAIT_S)
        for event in meanwhile:
            journal.record(event)
        may_go_on.set()
    assert recorded_in(path) == [ServerJoined("a", "1"), ServerJoined("b", "1"), *meanwhile]


def test_what_many_threads_record_is_there_after_any_compaction(path: Path) -> None:
    """Each makes shuffles of its own, and its last one stays."""

    def work(thread: int) -> None:
        for number in range(60):
            name = f"t{thread}-{number}"
            journal.record(ShuffleCreated(name, "", 1, None, ["a"], [[0]] * 20))
            if number < 59:
                journal.record(ShuffleDropped(name))

    with EventJournal(path, compact_bytes=2_000) as journal:
        run_threads(partial(work, number) for number in range(4))
    left = kept(recorded_in(path))
    names = sorted(event.id for event in left if isinstance(event, ShuffleCreated))
    assert names == [f"t{thread}-59" for thread in range(4)]
    assert len(left) == 4
    assert recorded(path, [ServerJoined("a", "1")], compact_bytes=100) < 1_000
