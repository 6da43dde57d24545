"""A journal on a full disk refuses what does not fit, and stays as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mrflight.errors import JournalError
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.journal_frame import HEADER_BYTES
from tests.support.full_disk import largest_file
from tests.support.journals import records_in
from tests.support.threads import run_threads


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
            journal.rewrite((bytes(100_000) for _ in range(40)), journal.size_bytes)
        with pytest.raises(ZeroDivisionError):
            journal.rewrite(breaks(), journal.size_bytes)
        (tmp_path / "j.new").mkdir()
        with pytest.raises(JournalError, match=r"stays as it was: .*Is a directory"):
            journal.rewrite([b"new"], journal.size_bytes)
        (tmp_path / "j.new").rmdir()
        assert os.listdir(tmp_path) == ["j"]
        assert path.read_bytes() == before
        journal.append(b"next")
        assert list(journal.records()) == [b"old", b"next"]
