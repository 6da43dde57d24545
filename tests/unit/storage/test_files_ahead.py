"""Tests of small files that are fetched ahead: content, versions, order, and bounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from mrflight.storage.disk import Disk
from mrflight.storage.failures import StoreCallError
from mrflight.storage.files_ahead import files_ahead
from mrflight.storage.store import FileVersion


@dataclass(frozen=True)
class SlowDisk(Disk):
    """A disk that says it has the latency of a network, and does something at each open."""

    at_open: Callable[[str], object] = print
    requests_at_once: ClassVar[int] = 4  # type: ignore[misc]

    def open_input(self, path: str) -> pa.NativeFile:
        self.at_open(path)
        return super().open_input(path)


def written(folder: Path, count: int, size: int = 10) -> dict[str, FileVersion]:
    found = {}
    for number in range(count):
        path = folder / f"{number:03}"
        path.write_bytes(b"%03d" % number * (size // 3))
        info = path.stat()
        found[str(path)] = FileVersion(info.st_size, info.st_mtime_ns)
    return found


def test_files_are_fetched_side_by_side(tmp_path: Path) -> None:
    """Each open waits for three others."""
    files = written(tmp_path, 12)
    together = threading.Barrier(4)
    with files_ahead(SlowDisk(at_open=lambda _: together.wait(10)), files) as store:
        for path, version in files.items():
            with store.open_version(path, version) as file:
                assert file.read() == Path(path).read_bytes()


def test_a_disk_is_read_as_it_is(tmp_path: Path) -> None:
    disk = Disk()
    with files_ahead(disk, written(tmp_path, 3)) as store:
        assert store is disk


def test_few_bytes_and_few_files_are_fetched_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrflight.storage.files_ahead._MAX_AHEAD_BYTES", 100)
    for size, most in ((30, 3), (3, 16), (300, 1)):
        files = written(tmp_path, 60, size)
        opened: list[str] = []
        with files_ahead(SlowDisk(at_open=opened.append), files) as store:
            for number, (path, version) in enumerate(files.items()):
                assert store.open_version(path, version).read() == Path(path).read_bytes()
                assert store.open_version(path, version).size() == version.size_bytes
                assert len(opened) <= number + most
        assert sorted(opened) == list(files)


def test_files_that_are_not_opened_are_skipped(tmp_path: Path) -> None:
    files = written(tmp_path, 40)
    with files_ahead(SlowDisk(at_open=str), files) as store:
        for path in list(files)[::13]:
            assert store.open_version(path, files[path]).read() == Path(path).read_bytes()
        first = next(iter(files))  # an earlier one again, for a message
        assert store.open_version(first, files[first]).read() == Path(first).read_bytes()


def test_a_changed_file_is_told_where_it_is_opened(tmp_path: Path) -> None:
    files = written(tmp_path, 9)
    changed = list(files)[5]
    os.utime(changed, ns=(0, 0))
    with files_ahead(SlowDisk(at_open=str), files) as store:
        for path, version in files.items():
            if path == changed:
                with pytest.raises(StoreCallError, match="005: it has changed since"):
                    store.open_version(path, version)
            else:
                store.open_version(path, version)


def test_a_missing_file_is_told_where_it_is_opened(tmp_path: Path) -> None:
    files = written(tmp_path, 3)
    first, second, _ = files
    os.unlink(second)
    with files_ahead(SlowDisk(at_open=str), files) as store:
        store.open_version(first, files[first])
        with pytest.raises(OSError, match="001"):
            store.open_version(second, files[second])


def test_no_thread_stays_if_the_reader_stops(tmp_path: Path) -> None:
    files = written(tmp_path, 30)
    with files_ahead(SlowDisk(at_open=str), files) as store:
        store.open_version(*next(iter(files.items())))
    assert not [each for each in threading.enumerate() if each.name.startswith("fetch")]
