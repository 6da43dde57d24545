"""Tests of failing disks, with real processes that write and a data server that spills."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import MrflightError
from tests.support.clusters.cluster import data_server, standing_cluster
from tests.support.commands.scripts import Script, running_script
from tests.support.faults.failing_disk import (
    flip_byte,
    full_disk,
    remove_folder,
    spill_files,
    truncate_file,
    write_protected,
)
from tests.support.suite.waiting import await_that, hang_s

MIB = 2**20
ROWS = 2_000_000
LARGE = 2**40
"""Rows start at this number, as small numbers would be encoded in fewer bytes."""

WRITER = """
import os, sys
if os.geteuid() == 0 and sys.argv[1] == "nobody":
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for line in sys.stdin:
    path, size = line.split()
    try:
        with open(path, "ab", buffering=0) as file:
            written = file.write(bytes(int(size)))
        print("wrote", written, flush=True)
    except OSError as error:
        print("errno", error.errno, flush=True)
"""


class Writer(Script):
    """A process that appends to files on request."""

    def append(self, path: Path, size: int) -> tuple[str, int]:
        word, number = self.ask(f"{path} {size}").split()
        return word, int(number)


@contextlib.contextmanager
def writer(user: str = "current") -> Iterator[Writer]:
    """Start a writer; "nobody" is another ``user`` than "current" only if the tests run as root."""
    with running_script(WRITER, user) as script:
        yield Writer(script.process)


def test_a_full_disk_refuses_bytes_until_it_has_room_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with writer() as process:
        assert process.append(file, 100) == ("wrote", 100)
        with full_disk(process.process.pid, file_bytes=150):
            assert process.append(file, 100) == ("wrote", 50)
            assert process.append(file, 1) == ("errno", errno.EFBIG)
            assert process.append(tmp_path / "other", 10) == ("wrote", 10)
        assert process.append(file, 1) == ("wrote", 1)
    assert file.stat().st_size == 151


def test_a_disk_without_room_refuses_every_byte(tmp_path: Path) -> None:
    with writer() as process, full_disk(process.process.pid):
        assert process.append(tmp_path / "file", 1) == ("errno", errno.EFBIG)


def test_a_process_may_end_on_a_full_disk() -> None:
    with writer() as process:
        with full_disk(process.process.pid):
            process.process.kill()
            process.process.wait(hang_s())
        with pytest.raises(ProcessLookupError), full_disk(process.process.pid):
            pass


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder in /tmp that any user can reach and write to."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_a_protected_folder_refuses_new_files(open_folder: Path) -> None:
    with writer("nobody") as process:
        assert process.append(open_folder / "old", 1) == ("wrote", 1)
        with write_protected(open_folder):
            assert process.append(open_folder / "new", 1) == ("errno", errno.EACCES)
            assert process.append(open_folder / "old", 1) == ("wrote", 1)
        assert process.append(open_folder / "new", 1) == ("wrote", 1)


def test_a_removed_folder_refuses_files(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with writer() as process:
        assert process.append(folder / "file", 1) == ("wrote", 1)
        remove_folder(folder)
        assert process.append(folder / "file", 1) == ("errno", errno.ENOENT)


def test_damage_outside_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    flip_byte(file, 1)
    assert file.read_bytes() == b"a" + bytes([ord("b") ^ 0xFF]) + b"c"
    truncate_file(file, 2)
    assert file.read_bytes() == b"a" + bytes([ord("b") ^ 0xFF])
    with pytest.raises(ValueError, match="has no byte 2"):
        flip_byte(file, 2)
    with pytest.raises(ValueError, match="nothing to cut off"):
        truncate_file(file, 2)


class Spilling:
    """A data server with 4 MiB of memory, and a client of its cluster."""

    def __init__(self, server: subprocess.Popen[str], cluster: mrflight.Cluster) -> None:
        self.server = server
        self._cluster = cluster
        self._shuffles: list[mrflight.Shuffle] = []

    def put(self, name: str) -> mrflight.Shuffle:
        """Write and commit a shuffle of 16 MB in one partition."""
        shuffle = self._cluster.create_shuffle(name, partitions=1)
        self._shuffles.append(shuffle)
        with shuffle.writer(map_id=0, key=["n"]) as out:
            for start in range(0, ROWS, 50_000):
                numbers = range(LARGE + start, LARGE + start + 50_000)
                out.write(pa.record_batch({"n": pa.array(numbers)}))
        return shuffle

    def drop_all(self) -> None:
        """Drop all shuffles, as a stopping server waits for their readers."""
        for shuffle in self._shuffles:
            shuffle.drop()

    @staticmethod
    def total(shuffle: mrflight.Shuffle) -> int:
        return sum(n - LARGE for batch in shuffle.reader(0) for n in batch["n"].to_pylist())


@pytest.fixture
def spilling(tmp_path: Path) -> Iterator[Spilling]:
    options = ("--memory", "4 MiB", "--spill-dir", tmp_path)
    with (
        standing_cluster(data_servers=0) as standing,
        data_server(standing.metadata, *options) as (server, _),
        mrflight.connect(standing.metadata) as cluster,
    ):
        client = Spilling(server, cluster)
        yield client
        client.drop_all()
    assert server.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_data_server_on_a_full_disk_refuses_blocks_and_recovers(
    spilling: Spilling, tmp_path: Path
) -> None:
    with full_disk(spilling.server.pid), pytest.raises(MrflightError, match="File too large"):
        spilling.put("full")
    assert spilling.server.poll() is None
    assert spill_files(tmp_path) == []
    shuffle = spilling.put("room")
    assert sum(path.stat().st_size for path in spill_files(tmp_path)) > 8 * MIB
    assert spilling.total(shuffle) == sum(range(ROWS))


@pytest.mark.slow_but("flip")
@pytest.mark.parametrize(
    "damage",
    [lambda path: flip_byte(path, 1000), lambda path: truncate_file(path, 1000), os.unlink],
    ids=["flip", "truncate", "remove"],
)
def test_reading_a_damaged_spill_file_fails(
    spilling: Spilling, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    shuffle = spilling.put("damaged")
    (file,) = await_that(lambda: spill_files(tmp_path), "a spill file")
    damage(file)
    with pytest.raises(MrflightError, match="block"):
        spilling.total(shuffle)
    assert spilling.server.poll() is None
