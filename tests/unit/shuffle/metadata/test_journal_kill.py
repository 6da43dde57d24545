"""A journal whose process is killed keeps what it acknowledged."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mrflight.shuffle.metadata.journal import Journal
from tests.support.journals import check_order, records_in
from tests.support.threads import WAIT_S

APPENDER = """
import os, sys, threading
from pathlib import Path
from mrflight.shuffle.metadata.journal import Journal

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
while True:
    until = journal.size_bytes
    journal.rewrite(journal.records(until=until), until)
"""


REWRITER = """
import os, sys
from pathlib import Path
from mrflight.shuffle.metadata.journal import Journal

journal = Journal(Path(sys.argv[1]))
number = 0
while True:
    journal.rewrite((b"%d %d" % (number, part) for part in range(2000)), journal.size_bytes)
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
    """And all of it is copied again and again meanwhile."""
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
