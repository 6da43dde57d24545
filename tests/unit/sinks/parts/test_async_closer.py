"""Files are closed in the background while others are written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import JobFailedError
from mrflight.planner.reduce_tasks import plan_reduce_tasks
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.file_format import FileFormat
from mrflight.sinks.parts.open_files import PartLimits
from mrflight.sinks.parts.part_writer import FilePartWriter
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.storage import Location
from mrflight.storage.disk import Disk
from mrflight.storage.part_name import PartId
from mrflight.storage.streams import WrittenFile
from mrflight.tasks.stage_rows import StagePartition
from tests.support.suite.waiting import hang_s

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def fails() -> None:
    raise JobFailedError("the store is full")


class TestAsyncCloser:
    def test_without_pending_calls_a_file_is_closed_in_the_call(self) -> None:
        closed: list[int] = []
        with AsyncCloser(0) as closer:
            assert closer.submit(partial(closed.append, 1)).done()
            assert closed == [1]
            with pytest.raises(JobFailedError):
                closer.submit(fails)

    def test_files_are_closed_at_the_same_time_up_to_the_limit(self) -> None:
        together = threading.Barrier(3)
        with AsyncCloser(3) as closer:
            for _ in range(6):
                closer.submit(partial(_meet, together))

    def test_a_call_past_the_limit_waits_for_the_first(self) -> None:
        go, begun = threading.Event(), threading.Event()
        with AsyncCloser(1) as closer:
            closer.submit(partial(_wait, go))
            waits = threading.Thread(target=lambda: closer.submit(begun.set))
            waits.start()
            assert not begun.is_set()
            go.set()
            waits.join(hang_s())
        assert begun.is_set()

    def test_exit_raises_the_first_failure_after_all_have_ended(self) -> None:
        closed: list[int] = []
        with pytest.raises(JobFailedError, match="full"):
            _submit_all(partial(closed.append, 1), fails, partial(closed.append, 2))
        assert sorted(closed) == [1, 2]

    def test_submit_raises_an_earlier_failure(self) -> None:
        closer = AsyncCloser(1)
        closer.submit(fails)
        with pytest.raises(JobFailedError), closer:
            closer.submit(partial(_meet, threading.Barrier(1)))

    def test_another_error_is_raised_after_all_files_are_closed(self) -> None:
        closed = threading.Event()
        with pytest.raises(KeyError):
            _submit_all(fails, closed.set, then=KeyError())
        assert closed.is_set()


def _submit_all(*closes: Callable[[], None], then: Exception | None = None) -> None:
    with AsyncCloser(4) as closer:
        for close in closes:
            closer.submit(close)
        if then is not None:
            raise then


def _meet(together: threading.Barrier) -> None:
    together.wait(hang_s())


def _wait(event: threading.Event) -> None:
    assert event.wait(hang_s())


@dataclass(frozen=True)
class LateDisk(Disk):
    """A disk whose files are there only once `before_close` has returned."""

    before_close: Callable[[], None] = field(default=lambda: None)

    slow_close = True

    def create(self, path: str) -> pa.NativeFile:
        written: list[bytes] = []

        def close() -> None:
            self.before_close()
            with super(LateDisk, self).create(path) as file:
                file.write(b"".join(written))

        return pa.PythonFile(WrittenFile(written.append, close), mode="w")


def writer(folder: Path, before_close: Callable[[], None]) -> FilePartWriter:
    table = Location(str(folder), LateDisk(before_close=before_close))
    target = TableSchema(table.url, True, ("word",), None)
    return FilePartWriter(table, "job", target, FileFormat("delta"))


def rows(*words: str) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": [0], "word": [word]}, schema=SCHEMA) for word in words]


class TestPartFiles:
    def test_files_of_one_task_are_closed_at_the_same_time(self, tmp_path: Path) -> None:
        together = threading.Barrier(4)
        late = writer(tmp_path, partial(_meet, together))
        parts = late.write(PartId(0, 0), SCHEMA, rows("a", "b", "c", "d"))
        sizes = {path.stat().st_size for path in tmp_path.glob("*/*")}
        assert len(parts) == 4
        assert {part.size_bytes for part in parts} == sizes

    def test_files_of_several_writes_are_closed_at_the_same_time(self, tmp_path: Path) -> None:
        together = threading.Barrier(3)
        late = writer(tmp_path, partial(_meet, together))
        with AsyncCloser(late.max_closing_files) as closer:
            for partition in range(3):
                late.write(PartId(partition, 0), SCHEMA, rows("a"), closer=closer)
        assert len(list(tmp_path.glob("*/*"))) == 3

    def test_a_file_that_cannot_be_closed_fails_the_write_and_leaves_nothing(
        self, tmp_path: Path
    ) -> None:
        def full() -> None:
            raise OSError("full")

        with pytest.raises(JobFailedError, match="cannot be written: full"):
            writer(tmp_path, full).write(PartId(0, 0), SCHEMA, rows("a", "b", "c", "d", "e"))
        assert not [path for path in tmp_path.glob("*/*") if path.is_file()]

    def test_discard_removes_a_file_after_it_is_closed(self, tmp_path: Path) -> None:
        go = threading.Event()

        def failing() -> Iterator[pa.RecordBatch]:
            yield from rows("a", "b", "c")
            go.set()
            raise KeyError

        late = replace(writer(tmp_path, partial(_wait, go)), limits=PartLimits(1, 1))
        with pytest.raises(KeyError):
            late.write(PartId(0, 0), SCHEMA, failing())
        assert not [path for path in tmp_path.glob("*/*") if path.is_file()]


def partitions_of(*sizes: int) -> list[StagePartition]:
    return [
        StagePartition(
            number, (PartitionInfo(number, ("a",), epoch=1, rows=size, size_bytes=size),)
        )
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("partitions", "tasks"), [(1, 1), (2, 2), (3, 2), (47, 2), (48, 4), (304, 8), (1000, 8)]
)
def test_tasks_have_several_files_if_closing_takes_time(partitions: int, tasks: int) -> None:
    planned = plan_reduce_tasks(
        partitions_of(*[100] * partitions), 2, coalesces=False, slow_close=True
    )
    assert len(planned) == tasks
    counts = [len(each.files) for each in planned]
    assert sum(counts) == partitions
    assert max(counts) - min(counts) <= 1
    assert sorted(p.partition for each in planned for p in each.partitions) == [*range(partitions)]


def test_tasks_have_about_the_same_size_though_partitions_do_not() -> None:
    planned = plan_reduce_tasks(partitions_of(800, *[100] * 8), 2, coalesces=False, slow_close=True)
    assert [each.size_bytes for each in planned] == [800, 800]
