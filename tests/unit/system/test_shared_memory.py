"""Segments: what nobody can change, which descriptors are refused, and what is left afterwards."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.system import shared_memory
from mrflight.system.positioned_write import write_all
from mrflight.system.shared_memory import Segment, SegmentError
from tests.support.suite.messages import refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")

FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def segment_files() -> int:
    """Return how many descriptors of segments this process has open."""
    gc.collect()
    names = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("memfd:mrflight" in name for name in names)


def mappings() -> int:
    gc.collect()
    return Path("/proc/self/maps").read_text().count("memfd:mrflight")


def run(code: str) -> str:
    """Return what a Python process prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_nobody_can_change_a_segment_that_was_made_of_bytes() -> None:
    segment = Segment.of([memoryview(b"some "), memoryview(b""), memoryview(b"rows")])
    assert segment.is_final
    assert segment.buffer.to_pybytes() == b"some rows"
    with pytest.raises(PermissionError):
        os.pwrite(segment.file, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(segment.file, segment.size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    for size in (0, 8, 10):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.file, size)
    with refused(OSError):
        os.posix_fallocate(segment.file, 0, 100)
    again = os.open(f"/proc/self/fd/{segment.file}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.write(again, b"x")
    os.close(again)
    assert segment.buffer.to_pybytes() == b"some rows"
    assert Path(f"/proc/self/fd/{segment.file}").stat().st_mode & 0o777 == 0o600


def test_a_reserved_segment_is_filled_once_and_keeps_its_size() -> None:
    segment = Segment.reserve(3 * mmap.PAGESIZE)
    assert os.fstat(segment.file).st_blocks == 0, "pages that are not filled cost nothing"
    assert not segment.is_final
    written = segment.write(100, memoryview(b"some rows"))
    assert written.to_pybytes() == b"some rows"
    assert segment.buffer.slice(100, 9).to_pybytes() == b"some rows"
    assert os.fstat(segment.file).st_blocks * 512 == mmap.PAGESIZE
    for size in (0, mmap.PAGESIZE, 4 * mmap.PAGESIZE):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.file, size)


def a_file(folder: Path) -> int:
    (folder / "file").write_bytes(b"some rows")
    return os.open(folder / "file", os.O_RDWR)


def a_pipe(_: Path) -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def memory(size: int, seals: int) -> int:
    file = os.memfd_create("mrflight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


@pytest.mark.parametrize(
    "make",
    [
        a_file,
        a_pipe,
        lambda _: os.open("/dev/null", os.O_RDWR),
        lambda _: os.memfd_create("mrflight"),
        lambda _: memory(100, 0),
        lambda _: memory(100, fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE),
        lambda _: memory(100, fcntl.F_SEAL_SHRINK),
        lambda _: memory(0, FIXED_SIZE),
    ],
    ids=["file", "pipe", "device", "unsealable", "unsealed", "shrinks", "grows", "empty"],
)
def test_a_descriptor_that_is_no_segment_is_refused_and_closed(
    make: object, tmp_path: Path
) -> None:
    file = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(SegmentError):
        Segment.received(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_a_received_segment_has_the_bytes_of_the_one_that_was_sent() -> None:
    sent = Segment.of([memoryview(b"some rows")])
    received = Segment.received(os.dup(sent.file))
    assert received.is_final
    assert received.size == 9
    del sent
    assert received.buffer.to_pybytes() == b"some rows"


@pytest.mark.slow
def test_buffers_outlive_their_segment_and_nothing_outlives_them() -> None:
    files, mapped = segment_files(), mappings()
    segment = Segment.of([memoryview(b"0123456789")])
    part = segment.read(3, 4)
    assert (segment_files(), mappings()) == (files + 1, mapped + 1)
    del segment
    assert (segment_files(), mappings()) == (files, mapped + 1)
    assert part.to_pybytes() == b"3456"
    del part
    assert mappings() == mapped


def test_a_process_with_many_mappings_copies_what_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would otherwise come to Linux's limit, where its allocations fail as well."""
    monkeypatch.setattr(shared_memory, "_MAX_MAPPED", 1)
    first, second = (Segment.of([memoryview(b"0123456789")]) for _ in range(2))
    before = mappings()
    parts = [first.read(3, 4), second.read(3, 4), first.read(7, 3)]
    assert [part.to_pybytes() for part in parts] == [b"3456", b"3456", b"789"]
    assert mappings() == before + 1


HALF = """
import resource
from mrflight.system.shared_memory import Segment, may_hold_another
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
held = []
while may_hold_another():
    held.append(Segment.reserve(4096))
print(len(held))
more = []
try:
    while True:
        more.append(Segment.of([memoryview(b"rows")]))
except OSError as error:
    print(error.strerror)
del more, held[1:]
print(may_hold_another(), len(held))
"""


def test_segments_take_half_of_the_files_that_a_process_may_open() -> None:
    assert run(HALF).splitlines() == ["30", "Too many open files", "True 1"]


WITHOUT = """
import fcntl, os
del os.memfd_create
for name in [name for name in dir(fcntl) if "SEAL" in name]:
    delattr(fcntl, name)
import mrflight
from mrflight.servers.shared_memory import SharedMemory
from mrflight.shuffle.wire import transport
from mrflight.system.shared_memory import IS_SUPPORTED, may_hold_another
print(IS_SUPPORTED, may_hold_another(), repr(SharedMemory().offer.name))
"""


def test_a_python_without_memfd_has_no_segments() -> None:
    """Some are built for versions of Linux that had none; conda's is one."""
    assert run(WITHOUT).split() == ["False", "False", "''"]


@given(parts=st.lists(st.binary(max_size=40), max_size=30), at_once=st.integers(1, 50))
def test_all_is_written_however_much_the_system_takes_at_once(
    parts: list[bytes], at_once: int
) -> None:
    written = bytearray(b"before")

    def pwritev(file: int, some: list[memoryview], offset: int) -> int:
        taken = b"".join(some)[:at_once]
        assert offset == len(written)
        written.extend(taken)
        return len(taken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        write_all(0, 6, list(map(memoryview, parts)))
    assert bytes(written) == b"before" + b"".join(parts)


def test_more_parts_than_one_call_takes_are_written(tmp_path: Path) -> None:
    parts = [bytes([number % 251]) * (number % 3) for number in range(5_000)]
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    write_all(file, 0, list(map(memoryview, parts)))
    os.close(file)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
