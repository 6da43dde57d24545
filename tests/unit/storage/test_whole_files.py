"""Tests of small files that are read whole and ahead: content, versions, order, and bounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from mrflight.storage.disk import Disk
from mrflight.storage.store import ChangedFileError, FileVersion
from mrflight.storage.whole_files import files_ahead
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s


@dataclass(frozen=True)
class SlowDisk(Disk):
    """A disk that says it has the latency of a network, and does something at each read."""

    at_read: Callable[[str], object] = print
    requests_at_once: ClassVar[int] = 4  # type: ignore[misc]

    def read_version(self, path: str, version: FileVersion) -> bytes:
        self.at_read(path)
        return super().read_version(path, version)


def written(folder: Path, count: int, size: int = 10) -> dict[str, FileVersion]:
    found = {}
    for number in range(count):
        path = folder / f"{number:03}"
        path.write_bytes(b"%03d" % number * (size // 3))
        info = path.stat()
        found[str(path)] = FileVersion(info.st_size, info.st_mtime_ns)
    return found


def test_files_are_fetched_side_by_side(tmp_path: Path) -> None:
    """Each read waits for three others."""
    files = written(tmp_path, 12)
    together = threading.Barrier(4)
    with files_ahead(SlowDisk(at_read=lambda _: together.wait(hang_s())), files) as store:
        for path, version in files.items():
            with store.open_version(path, version) as file:
                assert file.read() == Path(path).read_bytes()


def test_a_disk_is_read_when_a_file_is_opened_and_once_for_its_header_and_rows(
    tmp_path: Path,
) -> None:
    files = written(tmp_path, 3)
    first, second, third = files
    with files_ahead(Disk(), files) as store:
        os.unlink(third)
        for path in (first, first, second):
            assert store.open_version(path, files[path]).read() == Path(path).read_bytes()
        os.unlink(second)
        assert store.open_version(second, files[second]).size() == 9
        with pytest.raises(FileNotFoundError):
            store.open_version(third, files[third])


def test_few_bytes_and_few_files_are_fetched_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrflight.storage.whole_files._MAX_AHEAD_BYTES", 100)
    for size, most in ((30, 3), (3, 16), (300, 1)):
        files = written(tmp_path, 60, size)
        was_read: list[str] = []
        with files_ahead(SlowDisk(at_read=was_read.append), files) as store:
            for number, (path, version) in enumerate(files.items()):
                assert store.open_version(path, version).read() == Path(path).read_bytes()
                assert store.open_version(path, version).size() == version.size_bytes
                assert len(was_read) <= number + most
        assert sorted(was_read) == list(files)


def test_files_that_are_not_opened_are_skipped(tmp_path: Path) -> None:
    files = written(tmp_path, 40)
    with files_ahead(SlowDisk(at_read=str), files) as store:
        for path in list(files)[::13]:
            assert store.open_version(path, files[path]).read() == Path(path).read_bytes()
        first = next(iter(files))  # an earlier one again, for a message
        assert store.open_version(first, files[first]).read() == Path(first).read_bytes()


def test_a_changed_file_is_told_where_it_is_opened(tmp_path: Path) -> None:
    files = written(tmp_path, 9)
    changed = list(files)[5]
    os.utime(changed, ns=(0, 0))
    with files_ahead(SlowDisk(at_read=str), files) as store:
        for path, version in files.items():
            if path == changed:
                with refused(ChangedFileError):
                    store.open_version(path, version)
            else:
                store.open_version(path, version)


def test_a_missing_file_is_told_where_it_is_opened(tmp_path: Path) -> None:
    files = written(tmp_path, 3)
    first, second, _ = files
    os.unlink(second)
    with files_ahead(SlowDisk(at_read=str), files) as store:
        store.open_version(first, files[first])
        with pytest.raises(OSError, match="001"):
            store.open_version(second, files[second])


def test_no_thread_stays_if_the_reader_stops(tmp_path: Path) -> None:
    files = written(tmp_path, 30)
    with files_ahead(SlowDisk(at_read=str), files) as store:
        store.open_version(*next(iter(files.items())))
    assert not [each for each in threading.enumerate() if each.name.startswith("read-ahead")]
