"""Segments of an event log: what is written is read, also after a crash at any byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import (
    EventLogDamagedError,
    EventLogWriteError,
    OffsetTrimmedError,
    ProtocolError,
)
from mrflight.shuffle.log.durable_log import NO_MARK, DurableLog
from mrflight.shuffle.log.frame import (
    Frame,
    FrameKind,
    SegmentStart,
    StoredBatch,
    decode_frame,
    decode_frames,
    hash_payload,
    joined,
    serialize,
)
from mrflight.shuffle.log.log_rows import read_rows
from mrflight.shuffle.log.producers import REMEMBERED_BATCHES
from tests.support.faults.forgetful_disk import ForgetfulDisk
from tests.support.faults.full_disk import largest_file
from tests.support.suite.messages import refused

SCHEMA = pa.schema([("n", pa.int64())])


def payload(first: int, rows: int) -> bytes:
    return serialize(pa.record_batch([list(range(first, first + rows))], schema=SCHEMA))


def append(log: DurableLog, *sizes: int, producer: str = "p") -> None:
    """Append a group of batches, of so many rows each, and sync them."""
    at, durable, frames = log.high, log.high, []
    last = log.producers.last(producer)
    sequence = -1 if last is None else last.sequence
    for size in sizes:
        sequence += 1
        frames.append(Frame(at, size, payload(at, size), producer, sequence, durable))
        at += size
    if log.needs_segment:
        frames.insert(0, log.segment_start(SCHEMA))
    log.append(frames)
    log.sync()


def rows(log: DurableLog, start: int = 0, stop: int = 2**40) -> list[int]:
    stop = min(stop, log.high)
    parts = read_rows(log.read(start, stop), SCHEMA, start, stop)
    found: list[int] = []
    for first, batch in parts:
        assert first == start + len(found)
        found += batch["n"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 100), (0, 1), (7, 8), (9, 31), (30, 30), (29, 100), (99, 100)]
)
def test_any_range_is_read(start: int, stop: int, tmp_path: Path) -> None:
    with DurableLog(tmp_path, segment_bytes=1000) as log:
        for size in (1, 9, 10, 10, 30, 40):
            append(log, size)
        assert len(list(tmp_path.iterdir())) > 1
        assert rows(log, start, stop) == list(range(start, stop))


def test_a_log_is_read_again_with_its_producers(tmp_path: Path) -> None:
    with DurableLog(tmp_path, segment_bytes=1500) as log:
        for number in range(20):
            append(log, 3, producer=f"p{number % 3}")
        known = log.producers.all()
    with DurableLog(tmp_path, segment_bytes=1500) as log:
        assert rows(log) == list(range(60))
        assert log.schema == SCHEMA
        assert log.producers.all() == known
        append(log, 1)
        assert rows(log) == list(range(61))


def test_producers_are_remembered_although_their_segments_are_trimmed(tmp_path: Path) -> None:
    with DurableLog(tmp_path, segment_bytes=1500) as log:
        append(log, 2, producer="early")
        for _ in range(30):
            append(log, 3)
        low = log.trim(50)
        assert 0 < low <= 50
        with refused(OffsetTrimmedError):
            rows(log, low - 1)
        assert rows(log, low) == list(range(low, 92))
    with DurableLog(tmp_path) as log:
        assert (log.low, log.high) == (low, 92)
        assert log.producers.last("early") == (0, 0, 2, hash_payload(payload(0, 2)))
        assert log.producers.last("p") == (29, 89, 3, hash_payload(payload(89, 3)))
        assert len(log.producers.recent("p")) == REMEMBERED_BATCHES


def test_a_segment_that_began_without_the_hashes_of_batches_is_opened(tmp_path: Path) -> None:
    with DurableLog(tmp_path) as log:
        schema = SCHEMA.serialize().to_pybytes()
        before = SegmentStart(schema, [("p", [(0, 0, 3)])])  # type: ignore[list-item]
        log.append([Frame(0, 0, before.encode(), kind=FrameKind.SEGMENT_START)])
        log.sync()
        append(log, 2, producer="q")
    with DurableLog(tmp_path) as log:
        assert log.producers.last("q") == (0, 0, 2, hash_payload(payload(0, 2)))
        stored = log.producers.last("p")
        assert stored is not None
        assert [stored.is_same(StoredBatch(0, 9, rows, 7)) for rows in (3, 4)] == [True, False]
        assert stored == (0, 0, 3, None)


def test_the_newest_segment_is_never_trimmed(tmp_path: Path) -> None:
    with DurableLog(tmp_path) as log:
        append(log, 5)
        assert log.trim(10_000) == 0
        assert rows(log) == list(range(5))


@pytest.mark.slow
def test_a_segment_cut_at_any_byte_keeps_what_came_before(tmp_path: Path) -> None:
    with DurableLog(tmp_path / "whole") as log:
        ends = []
        for sizes in ((1,), (2, 1), (3,), (1, 1, 1)):
            append(log, *sizes)
            ends.append((log.size_bytes, log.high))
    (segment,) = (tmp_path / "whole").iterdir()
    data = segment.read_bytes()
    for cut in range(len(data)):
        folder = tmp_path / "cut"
        folder.mkdir()
        (folder / segment.name).write_bytes(data[:cut])
        with DurableLog(folder) as log:
            acknowledged = max((high for size, high in ends if size <= cut), default=0)
            found = rows(log)
            assert len(found) >= acknowledged, cut
            assert found == list(range(len(found))), cut
            append(log, 2)
            assert rows(log) == list(range(len(found) + 2)), cut
        shutil.rmtree(folder)


def test_damage_before_rows_that_were_acknowledged_is_an_error(tmp_path: Path) -> None:
    with DurableLog(tmp_path / "whole") as log:
        for size in (2, 3, 4):
            append(log, size)
            if size == 3:
                before_last = log.size_bytes
    (segment,) = (tmp_path / "whole").iterdir()
    data = segment.read_bytes()
    for at in range(0, len(data), 7):
        folder = tmp_path / "damaged"
        folder.mkdir()
        changed = bytearray(data)
        changed[at] ^= 0x20
        (folder / segment.name).write_bytes(changed)
        if at < before_last:
            with pytest.raises(EventLogDamagedError, match="is damaged at byte"):
                DurableLog(folder)
        else:  # it may be a group that was never acknowledged
            with DurableLog(folder) as log:
                assert rows(log) == list(range(5)), at
        shutil.rmtree(folder)


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    with DurableLog(tmp_path, segment_bytes=500) as log:
        for _ in range(9):
            append(log, 3)
    sorted(tmp_path.iterdir())[1].unlink()
    with pytest.raises(EventLogDamagedError, match="lacks rows"):
        DurableLog(tmp_path)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    with DurableLog(tmp_path) as log:
        append(log, 10)
        size = log.size_bytes
        with (
            largest_file(size + 50),
            refused(EventLogWriteError),
        ):
            append(log, 10)
        assert (log.high, log.size_bytes) == (10, size)
        append(log, 5)
        assert rows(log) == list(range(15))
    with DurableLog(tmp_path) as log:
        assert rows(log) == list(range(15))


def test_nothing_is_written_after_a_sync_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ForgetfulDisk(monkeypatch)
    with DurableLog(tmp_path) as log:
        append(log, 3)
        disk.fails_next = True
        with refused(EventLogWriteError):
            append(log, 10)
        stored = StoredBatch(0, 0, 3, hash_payload(payload(0, 3)))
        assert (log.high, log.producers.last("p"), rows(log)) == (3, stored, [0, 1, 2])
        with pytest.raises(EventLogWriteError, match="start the data server again"):
            append(log, 10)
    with DurableLog(tmp_path) as log:  # the system still has the rows in its memory
        found = rows(log)
    disk.cut_power()
    with DurableLog(tmp_path) as log:
        assert rows(log) == found
        append(log, 2)
        assert rows(log) == list(range(len(found) + 2))


@pytest.mark.parametrize("before", [(), (3,), (3, 1000)])
def test_rows_that_are_found_after_a_crash_are_on_the_disk(
    before: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was killed before its sync; the last rows may begin a segment."""
    disk = ForgetfulDisk(monkeypatch)
    with DurableLog(tmp_path, segment_bytes=1500) as log:
        for size in before:
            append(log, size)
        with monkeypatch.context() as patch:
            patch.setattr(DurableLog, "sync", lambda log: None)
            append(log, 5)
        assert log.high == sum(before)
        assert log.trim(sum(before)) == 0, "what was synced stays until what follows it is"
    with DurableLog(tmp_path) as log:
        assert rows(log) == list(range(sum(before) + 5))
    disk.cut_power()
    with DurableLog(tmp_path) as log:
        assert rows(log) == list(range(sum(before) + 5))


def test_a_copy_has_all_frames(tmp_path: Path) -> None:
    with DurableLog(tmp_path / "one", segment_bytes=1500) as log:
        for _ in range(30):
            append(log, 2, 1)
        low = log.trim(40)
        with DurableLog(tmp_path / "other") as copy:
            for data in log.chunks():
                copy.append(decode_frames(data))
                copy.sync()
            assert (copy.low, copy.high) == (low, log.high)
            assert rows(copy, low) == rows(log, low)
            assert copy.producers.all() == log.producers.all()
    names = [
        sorted(each.name for each in (tmp_path / which).iterdir()) for which in ("one", "other")
    ]
    assert names[0] == names[1]


def test_a_mark_tells_rows_from_others_at_their_offsets(tmp_path: Path) -> None:
    """It is the same in a copy, after a restart, and wherever the index of the file has entries."""
    offsets = [301 * group + rows for group in range(40) for rows in (1, 300, 301)]

    def marks(log: DurableLog) -> list[int]:
        return [log.mark(offset) for offset in offsets]

    with DurableLog(tmp_path / "one", segment_bytes=80_000) as log:
        for _ in range(40):
            append(log, 300, 1)
        with DurableLog(tmp_path / "other") as copy:
            for data in log.chunks():
                copy.append(decode_frames(data))
                copy.sync()
            found = marks(log)
            assert marks(copy) == found
        assert (log.mark(0), log.mark(log.high + 1)) == (NO_MARK, NO_MARK)
    assert found[::3] == found[1::3], "it tells frames, and not rows, from each other"
    assert len(set(found)) == 80
    assert all(0 < mark < 2**63 for mark in found)
    with DurableLog(tmp_path / "one") as log:
        assert marks(log) == found
        low = log.trim(5_000)
        assert [log.mark(low), log.mark(low + 1)] == [NO_MARK, found[offsets.index(low + 1)]]


def test_a_mark_is_another_one_if_an_earlier_row_is(tmp_path: Path) -> None:
    marks = []
    for name in ("one", "other"):
        with DurableLog(tmp_path / name) as log:
            append(log, 2, producer=name)
            append(log, 3)
            marks.append([log.mark(2), log.mark(5)])
    assert len({*marks[0], *marks[1]}) == 4


def test_frames_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    with DurableLog(tmp_path) as log:
        append(log, 3)
        with refused(EventLogDamagedError):
            log.append([Frame(5, 1, payload(5, 1))])
        assert rows(log) == [0, 1, 2]


def test_no_changed_byte_of_a_frame_goes_unnoticed() -> None:
    data = joined([Frame(7, 2, payload(7, 2), "producer", 3, 5)])
    whole = decode_frame(memoryview(data), 0)
    assert whole is not None
    assert (whole.offset, whole.rows, whole.producer, whole.sequence) == (7, 2, "producer", 3)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert decode_frame(memoryview(changed), 0) is None, at
        with pytest.raises(ProtocolError, match="cut or damaged"):
            decode_frames(bytes(changed))
    for size in range(len(data)):
        assert decode_frame(memoryview(data[:size]), 0) is None, size
