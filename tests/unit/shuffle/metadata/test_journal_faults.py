"""A journal whose server is killed, whose disk is full, or whose file is damaged or another's."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.metadata.events import (
    MapCommitted,
    ServerJoined,
)
from mrflight.shuffle.metadata.journal import Journal
from tests.support.clusters.journals import ENCODED, HISTORY, encoded, events_in, record_all
from tests.support.commands.scripts import running_script
from tests.support.faults.full_disk import largest_file
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


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


@pytest.mark.slow_but("2-4-10")
@pytest.mark.parametrize(
    ("seed", "threads", "size"),
    [(1, 1, 10), (2, 4, 10), (3, 8, 5_000), pytest.param(4, 2, 10_000_000, marks=pytest.mark.slow)],
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
        assert process.wait(hang_s()) == -9
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
        with refused(JobFileError):
            Journal(path)
        holder.process.kill()
        holder.process.wait(hang_s())
        assert events_in(path) == [ServerJoined("a", "")]


def test_a_journal_is_opened_once_in_a_process(path: Path) -> None:
    with Journal(path) as journal:
        with refused(JobFileError):
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
                refused(JournalError),
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
            with refused(JobFileError):
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
        with refused(JobFileError):
            Journal(path)
        holder.process.kill()
        holder.process.wait(hang_s())


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
    "make",
    [
        lambda path: path.write_bytes(b"key = 1\n" * 100),
        lambda path: path.write_bytes(b"PAR1" * 100),
        other_database,
        later_version,
        lambda path: path.write_bytes(b"mrflight-journal\1\0\0\0"),
    ],
)
def test_another_file_is_refused_and_left_alone(path: Path, make: object) -> None:
    make(path)  # type: ignore[operator]
    data = path.read_bytes()
    with refused(JobFileError):
        Journal(path)
    assert path.read_bytes() == data
    assert os.listdir(path.parent) == [path.name]


def test_a_path_that_cannot_be_used(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for unusable in (path.parent, path.parent / "no" / "journal"):
        with refused(JobFileError):
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
    with refused(JournalError):
        events_in(path)
