"""The meter against real processes that hold known amounts."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mrflight.memory_meter import MemoryMeter

MIB = 2**20
PYTHON_BYTES = 30 * MIB
"""More than an interpreter weighs that has imported nothing."""
BY_OTHERS = 10 * MIB
"""More than this process's share of its libraries falls by when a process that is not measured,
as another worker of pytest, maps the same ones."""

needs_pss = pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="only Linux tells shared pages apart"
)


@contextmanager
def process_with(size_bytes: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds so much for itself, until its input ends."""
    program = (
        f"import sys; held = bytearray(b'x') * {size_bytes}\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read()"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


@contextmanager
def fork() -> Iterator[int]:
    """A fork of this process, which does nothing until the block ends."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    try:
        yield pid
    finally:
        os.close(write)
        os.waitpid(pid, 0)


class Watched:
    """A meter of this process and of ``pids``, which may change; it says when it has looked."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.began = threading.Semaphore(0)
        self.meter = MemoryMeter(self._asked)

    def peak(self) -> int:
        """After a look that began after this call."""
        while self.began.acquire(blocking=False):
            pass
        for _ in range(2):  # it has ended when the next one begins
            assert self.began.acquire(timeout=20)
        return self.meter.peak_bytes

    def _asked(self) -> list[int]:
        self.began.release()
        return list(self.pids)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    with watched.meter:
        yield watched


@contextmanager
def written_pages(size_bytes: int) -> Iterator[mmap.mmap]:
    """Memory of this process that a fork shares until one of them writes to it."""
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        write_pages(held, size_bytes)
        yield held


def write_pages(held: mmap.mmap, size_bytes: int) -> None:
    for page in range(0, size_bytes, mmap.PAGESIZE):
        held[page] = 1


def assert_grown(before: int, top: int, by: int, processes: int = 1) -> None:
    """By what processes hold, of which each weighs something beside it."""
    assert before + by - BY_OTHERS < top < before + by + processes * PYTHON_BYTES


def test_the_peak_of_this_process_is_kept(watched: Watched) -> None:
    before = watched.peak()
    assert before > 10 * MIB
    with written_pages(200 * MIB):
        top = watched.peak()
    assert before + 190 * MIB < top < before + 250 * MIB
    assert watched.peak() == top


def test_processes_count_while_they_are_there_and_the_peak_stays(watched: Watched) -> None:
    before = watched.peak()
    with process_with(100 * MIB) as small, process_with(150 * MIB) as large:
        watched.pids += [small.pid]
        assert_grown(before, watched.peak(), 100 * MIB)
        watched.pids += [large.pid]
        top = watched.peak()
        assert_grown(before, top, 250 * MIB, processes=2)
    assert watched.peak() == top  # both are gone, and their ids are still asked for
    watched.pids.clear()
    assert watched.peak() == top


def test_processes_that_follow_each_other_do_not_add_up(watched: Watched) -> None:
    before = watched.peak()
    for _ in range(3):
        with process_with(100 * MIB) as process:
            watched.pids[:] = [process.pid]
            assert_grown(before, watched.peak(), 100 * MIB)


@needs_pss
def test_what_processes_share_counts_once(watched: Watched) -> None:
    with written_pages(200 * MIB):
        before = watched.peak()
        assert before > 200 * MIB
        with fork() as one, fork() as two, fork() as three:
            watched.pids += [one, two, three]
            assert watched.peak() < before + 50 * MIB  # and not three times 200 MiB more


@needs_pss
def test_a_page_that_is_written_to_is_no_longer_shared(watched: Watched) -> None:
    with written_pages(200 * MIB) as held:
        before = watched.peak()
        with fork() as child:
            write_pages(held, 100 * MIB)
            watched.pids += [child]  # what is shared is read anew for it
            assert before + 90 * MIB < watched.peak() < before + 150 * MIB


def test_a_process_that_is_gone_weighs_nothing(watched: Watched) -> None:
    before = watched.peak()
    with fork() as child:
        pass
    watched.pids += [child]
    assert watched.peak() < before + 5 * MIB


def test_nobody_looks_any_more_once_it_is_closed(watched: Watched) -> None:
    top = watched.peak()
    watched.meter.close()
    assert [thread for thread in threading.enumerate() if thread.name == "memory meter"] == []
    assert watched.meter.peak_bytes >= top
