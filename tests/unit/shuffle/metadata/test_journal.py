"""A journal gives back what it was given, in order, and takes no other file for its own."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.journal_file import START_BYTES
from mrflight.shuffle.metadata.journal_frame import HEADER_BYTES, MAX_RECORD_BYTES
from tests.support.full_disk import largest_file
from tests.support.journals import records_in


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
                journal.rewrite(step, journal.size_bytes)
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
        for refused in (journal.append, lambda record: journal.rewrite([b"x", record], size)):
            with pytest.raises(JournalError, match=r"67,108,865 bytes; .* at most 67,108,864"):
                refused(largest + b"x")
        assert journal.size_bytes == size
    assert records_in(tmp_path / "j") == [largest]


def test_a_rewrite_is_compact(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for number in range(100):
            journal.append(b"%3d" % number)
        journal.rewrite([b"%3d" % number for number in range(97, 100)], journal.size_bytes)
        assert journal.size_bytes == START_BYTES + HEADER_BYTES + 3 * (4 + 3)
        journal.rewrite((bytes(1000) for _ in range(3_000)), journal.size_bytes)  # in three frames
        assert journal.size_bytes == START_BYTES + 3 * HEADER_BYTES + 3_000 * 1004


def test_closing_lets_go_of_all(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    journal = Journal(tmp_path / "j")
    journal.append(b"one")
    journal.rewrite([b"two"], journal.size_bytes)
    next(journal.records())
    journal.close()
    journal.close()
    assert set(os.listdir("/proc/self/fd")) == before
    for refused in (journal.append, lambda record: journal.rewrite([record], START_BYTES)):
        with pytest.raises(JournalError, match="it is closed"):
            refused(b"three")
    assert records_in(tmp_path / "j") == [b"two"]


# What is none


@pytest.mark.parametrize("data", [b"key = 1\n", b"mrflight-journal\x02", b"PAR1" * 100, b"\0" * 64])
def test_another_file_is_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(JobFileError, match="j is not a journal of mrflight; name another file"):
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
