"""The journal of a metadata server: it keeps what matters, and takes no other file for its own."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import InconsistentMapOutputError, JobFileError, JournalError, MrflightError
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    CommitLeaseEnded,
    CommitLeaseGranted,
    CountsRestored,
    MapCommitted,
    PartitionsPlaced,
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
from tests.support.full_disk import largest_file
from tests.support.journals import encoded, events_in, record_all, sums
from tests.support.registries import (
    SCHEMA,
    TIMEOUT_S,
    Clock,
    commit,
    commit_message,
    knowledge,
    resumed,
)
from tests.support.scripts import running_script
from tests.support.threads import WAIT_S, run_threads

ENCODED = SCHEMA.serialize().to_pybytes()

HISTORY: list[AnyEvent] = [
    ServerJoined("a", "1"),
    ServerJoined("b", "1"),
    ShuffleCreated("x", "", 1, None, ["a", "b"], [[0], [1]]),
    MapCommitted("x", 0, 0, "w", -1, 0, 7, ENCODED, encoded([1, 2]), encoded([10, 20])),
    PartitionsPlaced("x", [0], [["b"]], [0], avoided=["a"]),
    ServerGone("a"),
    ShuffleDropped("x"),
    ServerJoined("a", "2"),
    ShuffleCreated("y", "t", 2, 3.5, ["a", "b"], [[0, 1]], "clicks"),
    ServerDraining("b"),
    ShuffleCreated("x", "", 1, None, ["a"], [[0]]),
    PartitionsPlaced("x", [0], [["b"]], [], moved=[0]),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


# What it keeps


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


@settings(max_examples=100, derandomize=True)
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


# Ends and faults


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
    assert [server.location for server in registry.servers()] == ["a"]
    assert events_in(path) == [ServerJoined("a", "")]


RECORDER = """
import os, sys, threading
from pathlib import Path
from mrflight.shuffle.metadata.events import ServerDraining
from mrflight.shuffle.metadata.journal import Journal

path, threads, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
journal = Journal(path)

def record(thread):
    number = 0
    while True:
        journal.record(ServerDraining(f"{thread} {number} " + "x" * size))
        os.write(1, b"%d %d\\n" % (thread, number))
        number += 1

for thread in range(threads):
    threading.Thread(target=record, args=[thread]).start()
"""


@pytest.mark.parametrize(
    ("seed", "threads", "size"), [(1, 1, 10), (2, 4, 10), (3, 8, 5_000), (4, 2, 10_000_000)]
)
def test_what_was_recorded_is_there_after_a_kill(
    path: Path, seed: int, threads: int, size: int
) -> None:
    kill_after = random.Random(seed).randrange(1, 300 if size < 10_000 else 6)
    command = [sys.executable, "-c", RECORDER, str(path), str(threads), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(kill_after)]
        process.kill()
        lines += process.stdout.readlines()
        assert process.wait(WAIT_S) == -9
    acknowledged = {tuple(map(int, line.split())) for line in lines}
    assert len(acknowledged) == len(lines) >= kill_after
    locations = [event.location.split(" ") for event in events_in(path)]  # type: ignore[union-attr]
    assert all(filling == "x" * size for _, _, filling in locations)
    there = [(int(thread), int(number)) for thread, number, _ in locations]
    assert acknowledged <= set(there), f"seed {seed}"
    for thread in range(threads):
        numbers = [number for of, number in there if of == thread]
        assert numbers == list(range(len(numbers)))
    assert len(there) - len(acknowledged) <= threads  # each thread was recording at most one


HOLDER = """
import sys
from pathlib import Path
from mrflight.shuffle.metadata.events import ServerGone, ServerJoined
from mrflight.shuffle.metadata.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.record(ServerJoined("a", ""))
print("held", flush=True)
sys.stdin.read()
"""


def test_only_one_process_has_it_until_that_is_killed(path: Path) -> None:
    with running_script(HOLDER, path) as holder:
        assert holder.read_line() == "held"
        with pytest.raises(JobFileError, match="belongs to another server that runs; end that"):
            Journal(path)
        holder.process.kill()
        holder.process.wait(WAIT_S)
        assert events_in(path) == [ServerJoined("a", "")]


def test_a_journal_is_opened_once_in_a_process(path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(JobFileError, match="belongs to another server"):
            Journal(path)
        journal.record(ServerJoined("a", ""))
    assert events_in(path) == [ServerJoined("a", "")]


def test_an_event_that_does_not_fit_on_the_disk_is_refused_and_the_rest_stays(path: Path) -> None:
    with Journal(path) as journal:
        journal.record(ServerJoined("before", ""))
        log = path.with_name(f"{path.name}-wal")
        size = log.stat().st_size
        for room in range(0, 5_000, 100):  # the frame of a page is refused wherever it breaks off
            with (
                largest_file(size + room),
                pytest.raises(
                    JournalError, match=r"cannot be written: .*; it needs room on a disk"
                ),
            ):
                journal.record(ServerJoined("x" * 10_000, ""))
            assert list(journal.events()) == [ServerJoined("before", "")]
        journal.record(ServerJoined("after", ""))
    assert events_in(path) == [ServerJoined("before", ""), ServerJoined("after", "")]


def test_a_log_that_is_cut_anywhere_loses_only_the_events_behind(path: Path) -> None:
    """A machine that loses power leaves such a log."""
    expected = [ServerJoined(str(number), "") for number in range(6)]
    journal = Journal(path)
    for event in expected:
        journal.record(event)
    log = path.with_name(f"{path.name}-wal")
    whole, data = log.read_bytes(), path.read_bytes()
    journal.close()
    counts = []
    for size in [*range(0, len(whole), 997), len(whole)]:
        path.write_bytes(data)
        log.write_bytes(whole[:size])
        found = events_in(path)
        assert found == expected[: len(found)]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 6)


def test_a_damaged_log_is_refused_unless_only_the_last_event_is_lost(path: Path) -> None:
    """A damaged last event looks like one that was not finished, which a kill can leave."""
    expected = [ServerJoined(str(number), "") for number in range(6)]
    journal = Journal(path)
    for event in expected[:-1]:
        journal.record(event)
    log = path.with_name(f"{path.name}-wal")
    last = log.stat().st_size
    journal.record(expected[-1])
    whole, data = log.read_bytes(), path.read_bytes()
    journal.close()
    chance = random.Random(18)
    frame = len(whole) // 2
    positions = [*range(60), *range(frame, frame + 60), *range(60, len(whole) - 1, 499)]
    lost = 0
    for position in positions:
        changed = bytearray(whole)
        changed[position] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        log.write_bytes(changed)
        if position < last:
            with pytest.raises(JobFileError, match="is damaged: its write-ahead log has a wrong"):
                Journal(path)
            assert (path.read_bytes(), log.read_bytes()) == (data, changed), (
                "a refusal repairs nothing"
            )
        else:
            assert events_in(path) == expected[:-1], f"byte {position}, seed 18"
            lost += 1
    assert lost > 5


def test_a_log_that_another_server_writes_is_not_called_damaged(path: Path) -> None:
    with running_script(HOLDER, path) as holder:
        assert holder.read_line() == "held"
        log = path.with_name(f"{path.name}-wal")
        log.write_bytes(b"x" * log.stat().st_size)  # any moment of a log that changes
        with pytest.raises(JobFileError, match="belongs to another server that runs"):
            Journal(path)
        holder.process.kill()
        holder.process.wait(WAIT_S)


def test_a_damaged_journal_is_refused_or_reads_the_same(path: Path) -> None:
    """A byte that was changed where nothing is stored does no harm."""
    counts = encoded(list(range(100)))
    events = [*HISTORY[7:], MapCommitted("y", 0, 0, "w", -1, 0, 7, ENCODED, counts[:2], counts[:2])]
    record_all(path, events)
    expected, data = events_in(path), path.read_bytes()
    chance = random.Random(18)
    refused = 0
    for position in [*range(100), *chance.sample(range(100, len(data)), 400)]:
        changed = bytearray(data)
        changed[position] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            assert events_in(path) == expected, f"byte {position}, seed 18"
        except (JobFileError, JournalError):
            refused += 1
    assert refused > 50


# Files that are not journals, or of other versions


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (x)")
    database.close()


def later_version(path: Path) -> None:
    Journal(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"key = 1\n" * 100), "is not a journal of mrflight; name"),
        (lambda path: path.write_bytes(b"PAR1" * 100), "is not a journal of mrflight; name an"),
        (other_database, "is not a journal of mrflight; name another file"),
        (later_version, "has version 2, and this mrflight reads version 1; start the one"),
        (
            lambda path: path.write_bytes(b"mrflight-journal\1\0\0\0"),
            "was written by an earlier mrflight; start that one, or move the file away",
        ),
    ],
)
def test_another_file_is_refused_and_left_alone(path: Path, make: object, message: str) -> None:
    make(path)  # type: ignore[operator]
    data = path.read_bytes()
    with pytest.raises(JobFileError, match=message):
        Journal(path)
    assert path.read_bytes() == data
    assert os.listdir(path.parent) == [path.name]


def test_a_path_that_cannot_be_used(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for unusable in (path.parent, path.parent / "no" / "journal"):
        with pytest.raises(JobFileError, match=r"cannot be used: .*name a file on a disk"):
            Journal(unusable)
    with largest_file(7), pytest.raises(JobFileError, match="cannot be used"):
        Journal(path)
    assert set(os.listdir("/proc/self/fd")) <= before
    assert events_in(path) == []  # it is created when there is room


def test_a_record_that_is_not_an_event_is_refused_with_its_journal(path: Path) -> None:
    record_all(path, HISTORY[:1])
    other = b"\x81\xa5event\xa9Surprised"
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET event = ?", [other])
    database.close()
    with pytest.raises(JournalError, match="is damaged: a record has another checksum"):
        events_in(path)
