"""A journal that is cut loses its torn end; one that is damaged anywhere else is refused."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import pytest

from mrflight.errors import JobFileError, JournalError
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.journal_file import START_BYTES
from mrflight.shuffle.metadata.journal_frame import HEADER_BYTES, MAX_RECORD_BYTES, encode_frame
from tests.support.journals import records_in


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
        journal.rewrite(frames[0], journal.size_bytes)
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
            journal.rewrite(journal.records(), journal.size_bytes)
        assert journal.size_bytes == small.stat().st_size == ends[-1]
        small.unlink()
        with pytest.raises(JournalError, match=r"cannot be read: .*No such file"):
            list(journal.records())
