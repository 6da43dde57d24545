"""A journal keeps what it acknowledged, on real files: killed, cut, damaged, full, shared."""

from __future__ import annotations

import errno
import os
import random
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.journal import Journal
from mrflight.shuffle.journal_file import START_BYTES
from mrflight.shuffle.journal_frame import HEADER_BYTES, MAX_RECORD_BYTES, encode_frame

WAIT_S = 30.0


def records_in(path: Path) -> list[bytes]:
    with Journal(path) as journal:
        return list(journal.records())


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond ``size``: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def run_threads(functions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


# What is there


def test_a_new_journal_is_empty_and_private(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert list(journal.records()) == []
        assert journal.size_bytes == (tmp_path / "j").stat().st_size == START_BYTES
    assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o600


def test_records_are_there_in_order_while_open_and_when_opened_again(tmp_path: Path) -> None:
    records = [b"one", b"", b"\0" * 100, os.urandom(100_000)]
    with Journal(tmp_path / "j") as journal:
        for number, record in enumerate(records):
            journal.append(record)
            assert list(journal.records()) == records[: number + 1]
        assert journal.size_bytes == (tmp_path / "j").stat().st_size
    assert records_in(tmp_path / "j") == records


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=50),  # is appended
            st.just("opened again"),
            st.lists(st.binary(max_size=50), max_size=5),  # is all there is from now on
        ),
        max_size=20,
    )
)
@settings(max_examples=60, derandomize=True)
def test_whatever_is_done_to_it_in_turn(steps: list[bytes | str | list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal, expected = Journal(Path(folder) / "j"), []
        for step in steps:
            if isinstance(step, bytes):
                journal.append(step)
                expected.append(step)
            elif isinstance(step, list):
                journal.rewrite(step)
                expected = list(step)
            else:
                journal.close()
                journal = Journal(Path(folder) / "j")
            assert list(journal.records()) == expected
            assert journal.size_bytes == (Path(folder) / "j").stat().st_size
        journal.close()
        assert records_in(Path(folder) / "j") == expected
        assert os.listdir(folder) == ["j"]


def test_the_largest_record_and_one_that_is_larger(tmp_path: Path) -> None:
    largest = bytes(MAX_RECORD_BYTES)
    with Journal(tmp_path / "j") as journal:
        journal.append(largest)
        size = journal.size_bytes
        for refused in (journal.append, lambda record: journal.rewrite([b"x", record])):
            with pytest.raises(JournalError, match=r"67,108,865 bytes; .* at most 67,108,864"):
                refused(largest + b"x")
        assert journal.size_bytes == size
    assert records_in(tmp_path / "j") == [largest]


def test_closing_lets_go_of_all(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    journal = Journal(tmp_path / "j")
    journal.append(b"one")
    journal.rewrite([b"two"])
    next(journal.records())
    journal.close()
    journal.close()
    assert set(os.listdir("/proc/self/fd")) == before
    for refused in (journal.append, lambda record: journal.rewrite([record])):
        with pytest.raises(JournalError, match="it is closed"):
            refused(b"three")
    assert records_in(tmp_path / "j") == [b"two"]


# Threads


def test_threads_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:

        def append_all(thread: int) -> None:
            for number in range(50):
                journal.append(b"%d %d" % (thread, number))

        def rewrite_all() -> None:
            for _ in range(20):
                journal.rewrite(journal.records())

        run_threads([*(partial(append_all, thread) for thread in range(8)), rewrite_all])
    check_order(records_in(tmp_path / "j"), dict.fromkeys(range(8), 50))


def check_order(records: list[bytes], expected: dict[int, int]) -> None:
    """Of each thread there is every record once, in order."""
    found: dict[int, list[int]] = {thread: [] for thread in expected}
    for record in records:
        thread, number = map(int, record.split()[:2])
        found[thread].append(number)
    assert found == {thread: list(range(count)) for thread, count in expected.items()}


def test_those_who_wait_at_the_same_time_share_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The syncs are real; the first is held up until all others wait behind it."""
    journal, sync, gate = Journal(tmp_path / "j"), os.fdatasync, threading.Event()
    syncs = 0

    def counted(file: int) -> None:
        nonlocal syncs
        syncs += 1
        assert gate.wait(WAIT_S)
        sync(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    threads = [
        threading.Thread(target=journal.append, args=[b"%d 0" % number], daemon=True)
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WAIT_S
    while waiting_threads(threads) < 16 or syncs == 0:
        assert time.monotonic() < deadline
    gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    journal.close()
    assert syncs == 2
    check_order(records_in(tmp_path / "j"), dict.fromkeys(range(16), 1))


def waiting_threads(threads: list[threading.Thread]) -> int:
    """How many of them wait for an event."""
    frames = sys._current_frames()
    innermost = [frames[thread.ident] for thread in threads if thread.ident in frames]
    return sum(frame.f_code.co_name == "wait" for frame in innermost)


def test_what_is_synced_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that loses its power is not at hand, so the calls are watched."""
    synced: list[str] = []

    def watched(sync: Callable[[int], None], file: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{file}"), tmp_path))
        sync(file)

    monkeypatch.setattr(os, "fsync", partial(watched, os.fsync))
    monkeypatch.setattr(os, "fdatasync", partial(watched, os.fdatasync))
    with Journal(tmp_path / "j") as journal:
        assert synced == ["j", "."]
        journal.append(b"one")
        assert synced[2:] == ["j"]
        journal.rewrite([b"two"])
        assert synced[3:] == ["j.new", "."]  # before it takes the other's place, and after
    Journal(tmp_path / "j").close()
    assert synced[5:] == ["j", "."]  # who wrote it may have been killed before its sync


# Killed

APPENDER = """
import os, sys, threading
from pathlib import Path
from mrflight.shuffle.journal import Journal

path, threads, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
journal = Journal(path)

def append(thread):
    number = 0
    while True:
        journal.append(b"%d %d " % (thread, number) + bytes(size))
        os.write(1, b"%d %d\\n" % (thread, number))
        number += 1

for thread in range(threads):
    threading.Thread(target=append, args=[thread]).start()
"""

REWRITER = """
import os, sys
from pathlib import Path
from mrflight.shuffle.journal import Journal

journal = Journal(Path(sys.argv[1]))
number = 0
while True:
    journal.rewrite(b"%d %d" % (number, part) for part in range(2000))
    os.write(1, b"%d\\n" % number)
    number += 1
"""


def acknowledged_until_killed(code: str, arguments: list[str], kill_after: int) -> list[bytes]:
    """All lines of a process that is killed when it has said so many."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(kill_after)]
        process.kill()
        lines += process.stdout.readlines()
        assert process.wait(WAIT_S) == -9
    assert b"" not in lines
    return lines


@pytest.mark.parametrize(
    ("seed", "threads", "size"), [(1, 1, 10), (2, 4, 10), (3, 8, 5_000), (4, 2, 10_000_000)]
)
def test_what_was_acknowledged_is_there_after_a_kill(
    tmp_path: Path, seed: int, threads: int, size: int
) -> None:
    chance = random.Random(seed)
    for attempt in range(3):
        path = tmp_path / f"j{attempt}"
        kill_after = chance.randrange(1, 300 if size < 10_000 else 6)
        lines = acknowledged_until_killed(
            APPENDER, [str(path), str(threads), str(size)], kill_after
        )
        acknowledged = {tuple(map(int, line.split())) for line in lines}
        assert len(acknowledged) == len(lines) >= kill_after
        records = records_in(path)
        there = [(int(t), int(n)) for t, n, _ in (record.split(b" ") for record in records)]
        assert all(record.endswith(bytes(size)) for record in records)
        assert acknowledged <= set(there), f"seed {seed}, attempt {attempt}"
        counts = {thread: [t for t, _ in there].count(thread) for thread in range(threads)}
        check_order(records, counts)
        # At most one append of each thread was under way.
        assert len(there) - len(acknowledged) <= threads


@pytest.mark.parametrize("seed", range(4))
def test_a_rewrite_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path, seed: int) -> None:
    kill_after = random.Random(seed).randrange(1, 30)
    lines = acknowledged_until_killed(REWRITER, [str(tmp_path / "j")], kill_after)
    last = int(lines[-1])
    records = records_in(tmp_path / "j")
    number = int(records[0].split()[0])
    assert last <= number <= last + 1
    assert records == [b"%d %d" % (number, part) for part in range(2000)]
    assert os.listdir(tmp_path) == ["j"]


def test_what_a_killed_rewrite_left_is_removed(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append(b"one")
    (tmp_path / "j.new").write_bytes(b"half")
    assert records_in(tmp_path / "j") == [b"one"]
    assert os.listdir(tmp_path) == ["j"]


# Cut and damaged


def flat(frames: list[list[bytes]]) -> list[bytes]:
    return list(chain.from_iterable(frames))


@pytest.fixture
def frames() -> list[list[bytes]]:
    """The records of each frame of a small journal."""
    return [[b"one", b"", b"three"], [b"four"], [b""], [b"six, at the end"]]


@pytest.fixture
def small(tmp_path: Path, frames: list[list[bytes]]) -> Path:
    """A journal of these frames."""
    with Journal(tmp_path / "j") as journal:
        journal.rewrite(frames[0])
        for (record,) in frames[1:]:
            journal.append(record)
    return tmp_path / "j"


@pytest.fixture
def ends(frames: list[list[bytes]], small: Path) -> list[int]:
    """Where each frame ends, the first number being where the first begins."""
    found = [START_BYTES]
    for records in frames:
        found.append(found[-1] + len(encode_frame(found[-1], records)))
    assert found[-1] == small.stat().st_size
    return found


def test_cut_at_every_byte(
    small: Path, frames: list[list[bytes]], ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    data = small.read_bytes()
    for size in range(len(data) + 1):
        small.write_bytes(data[:size])
        whole = sum(end <= size for end in ends[1:])
        expected = flat(frames[:whole])
        caplog.clear()
        with Journal(small) as journal:
            assert list(journal.records()) == expected, size
            assert journal.size_bytes == small.stat().st_size == ends[whole]
            journal.append(b"next")
        assert records_in(small) == [*expected, b"next"]
        torn = size > START_BYTES and size not in ends
        assert ("not finished" in caplog.text) == torn
        if torn:
            assert f"{size - ends[whole]} bytes from byte {ends[whole]} are cut" in caplog.text


@pytest.mark.parametrize("flip", [0xFF, *(1 << bit for bit in range(8))], ids=hex)
def test_every_byte_changed(
    small: Path, frames: list[list[bytes]], ends: list[int], flip: int
) -> None:
    data = small.read_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= flip
        small.write_bytes(changed)
        if position >= ends[-2]:  # as a torn append would look
            assert records_in(small) == flat(frames[:-1]), position
            assert small.stat().st_size == ends[-2]
            continue
        start = max((end for end in ends if end <= position), default=0)
        said = f"is damaged at byte {start}," if start else "is no journal|is of version"
        with pytest.raises(JobFileError, match=said):
            Journal(small)
        assert small.read_bytes() == changed  # nothing is given up without being asked


def test_damage_in_the_last_two_frames_is_no_torn_append(small: Path, ends: list[int]) -> None:
    data = bytearray(small.read_bytes())
    data[ends[-2] - 1] ^= 1
    data[ends[-1] - 1] ^= 1
    small.write_bytes(data)
    with pytest.raises(JobFileError, match=rf"damaged at byte {ends[-3]}.*--size {ends[-3]}\)"):
        Journal(small)
    os.truncate(small, ends[-3])  # as the error says
    assert len(records_in(small)) == 4


def test_a_tail_that_the_machine_never_wrote_is_cut_off(
    small: Path, frames: list[list[bytes]], ends: list[int]
) -> None:
    """Zeros where the file was grown, and the second half of a frame whose first half is not."""
    data = small.read_bytes()
    torn = encode_frame(len(data), [bytes(5_000), data])  # it holds what looks like frames
    for tail in (bytes(1), bytes(HEADER_BYTES), bytes(10_000), bytes(4096) + torn[4096:]):
        small.write_bytes(data + tail)
        assert records_in(small) == flat(frames)
        assert small.read_bytes() == data
    small.write_bytes(data + bytes(40) + encode_frame(len(data) + 40, [b"acknowledged"]))
    with pytest.raises(JobFileError, match=f"damaged at byte {len(data)},"):
        Journal(small)


def test_more_damage_than_one_append_makes_is_an_error(small: Path, ends: list[int]) -> None:
    os.truncate(small, ends[-1] + MAX_RECORD_BYTES + 2 * HEADER_BYTES)
    with pytest.raises(JobFileError, match=f"damaged at byte {ends[-1]},"):
        Journal(small)


def test_damage_while_it_is_open_is_found_by_who_reads(small: Path, ends: list[int]) -> None:
    with Journal(small) as journal:
        with small.open("r+b") as changed:
            changed.seek(ends[1])
            changed.write(b"\xff")
        with pytest.raises(JournalError, match=f"damaged at byte {ends[1]},"):
            list(journal.records())
        with pytest.raises(JournalError, match="damaged"):
            journal.rewrite(journal.records())
        assert journal.size_bytes == small.stat().st_size == ends[-1]
        small.unlink()
        with pytest.raises(JournalError, match=r"cannot be read: .*No such file"):
            list(journal.records())


# A full disk


def test_what_does_not_fit_is_refused_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(b"before")
        size = journal.size_bytes
        for room in range(60):  # in the middle of the header, of the record, just not enough
            with (
                largest_file(size + room),
                pytest.raises(JournalError, match=r"keeps no record: .*File too large.* room"),
            ):
                journal.append(bytes(60 - HEADER_BYTES))
            assert journal.size_bytes == path.stat().st_size == size
            assert list(journal.records()) == [b"before"]
        journal.append(b"after")
        assert list(journal.records()) == [b"before", b"after"]
    assert records_in(path) == [b"before", b"after"]


def test_of_many_threads_on_a_full_disk_each_is_told_right(tmp_path: Path) -> None:
    kept: list[bytes] = []
    refused: list[bytes] = []

    def append_some(journal: Journal, thread: int) -> None:
        for number in range(40):
            record = b"%d %d" % (thread, number)
            try:
                journal.append(record)
                kept.append(record)
            except JournalError:
                refused.append(record)

    with Journal(tmp_path / "j") as journal, largest_file(2_000):
        run_threads([partial(append_some, journal, thread) for thread in range(8)])
        assert journal.size_bytes <= 2_000
    assert kept
    assert refused
    assert len(kept) + len(refused) == 8 * 40
    assert sorted(records_in(tmp_path / "j")) == sorted(kept)


def test_a_rewrite_that_fails_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "j"

    def breaks() -> Iterator[bytes]:
        yield b"new"
        raise ZeroDivisionError

    with Journal(path) as journal:
        journal.append(b"old")
        before = path.read_bytes()
        with (
            largest_file(3_000_000),
            pytest.raises(JournalError, match=r"stays as it was: .*large"),
        ):
            journal.rewrite(bytes(100_000) for _ in range(40))
        with pytest.raises(ZeroDivisionError):
            journal.rewrite(breaks())
        (tmp_path / "j.new").mkdir()
        with pytest.raises(JournalError, match=r"stays as it was: .*Is a directory"):
            journal.rewrite([b"new"])
        (tmp_path / "j.new").rmdir()
        assert os.listdir(tmp_path) == ["j"]
        assert path.read_bytes() == before
        journal.append(b"next")
        assert list(journal.records()) == [b"old", b"next"]


def test_a_rewrite_is_compact(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for number in range(100):
            journal.append(b"%3d" % number)
        journal.rewrite([b"%3d" % number for number in range(97, 100)])
        assert journal.size_bytes == START_BYTES + HEADER_BYTES + 3 * (4 + 3)
        journal.rewrite(bytes(1000) for _ in range(3_000))  # in three frames
        assert journal.size_bytes == START_BYTES + 3 * HEADER_BYTES + 3_000 * 1004


def test_nothing_is_taken_after_a_sync_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk here fails at a sync, so the call is made to: a later one would tell nothing."""

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append(b"before")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fails)
            with pytest.raises(JournalError, match="Input/output error"):
                journal.append(b"lost")
        assert journal.size_bytes == path.stat().st_size
        with pytest.raises(JournalError, match=r"a sync failed .*start the server anew"):
            journal.append(b"later")
        assert list(journal.records()) == [b"before"]
        journal.rewrite(journal.records())  # is another file
        journal.append(b"after")
    assert records_in(path) == [b"before", b"after"]


# Two of them

HOLDER = """
import sys
from pathlib import Path
from mrflight.shuffle.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.append(b"held")
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_has_it_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(JobFileError, match="j belongs to another server that runs; end that"):
            Journal(path)
        process.kill()
        process.wait(WAIT_S)
        assert records_in(path) == [b"held"]


def test_it_is_never_free_while_it_is_rewritten(tmp_path: Path) -> None:
    os.symlink(tmp_path / "j", tmp_path / "link")
    over = threading.Event()
    outcomes: set[str] = set()

    def open_again() -> None:
        while not over.is_set():
            try:
                Journal(tmp_path / "j").close()
                outcomes.add("it was free")
            except JobFileError as error:
                outcomes.add(str(error))

    with Journal(tmp_path / "link") as journal:
        opener = threading.Thread(target=open_again, daemon=True)
        opener.start()
        try:
            for number in range(100):
                journal.rewrite([b"%d" % number])
        finally:
            over.set()
            opener.join(WAIT_S)
    (said,) = outcomes
    assert "belongs to another server" in said
    assert (tmp_path / "link").is_symlink()
    assert records_in(tmp_path / "j") == [b"99"]


# What is none


@pytest.mark.parametrize("data", [b"key = 1\n", b"mrflight-journal\x02", b"PAR1" * 100, b"\0" * 64])
def test_another_file_is_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(JobFileError, match="j is no journal of mrflight; name another file"):
        Journal(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == data


def test_a_journal_of_another_version_is_left_alone(tmp_path: Path) -> None:
    data = b"mrflight-journal\x02\0\0\0" + b"x" * 100
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(JobFileError, match="is of version 2, and this mrflight knows 1; start"):
        Journal(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == data


def test_a_path_that_cannot_be_used(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for path in (tmp_path, tmp_path / "no" / "j"):
        with pytest.raises(JobFileError, match=r"cannot be used: .*name a file on a disk"):
            Journal(path)
    with largest_file(7), pytest.raises(JobFileError, match="File too large"):
        Journal(tmp_path / "j")
    assert set(os.listdir("/proc/self/fd")) == before
    assert records_in(tmp_path / "j") == []  # what was begun goes on when there is room
