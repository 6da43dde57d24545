"""The sampler against real processes that hold known amounts.

What a process weighs is not its own affair: of 41 MiB of libraries that this one maps, it has 37
alone, and 19 from the moment that another worker of pytest, which nobody measures, maps them too.
So nothing is compared with what was weighed before, but with `own_bytes` and `mapped_bytes`, which
no other process changes.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from mrflight.system import memory_sampler as sampler_module
from mrflight.system.memory_sampler import MemorySampler
from tests.support.suite.waiting import hang_s

MIB = 2**20
FORK_BYTES = 5 * MIB
"""More than an idle fork writes to."""

needs_pss = pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="only Linux tells shared pages apart"
)


@contextmanager
def process_with(size_bytes: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds so much private memory until its input ends."""
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
    """A fork of this process that is idle until the block ends."""
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


def own_bytes(*pids: int) -> int:
    """Return the memory of processes without pages of files, a lower bound of the PSS."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(kb) * 1024 for text in rollups for kb in re.findall(r"Pss_Anon: +(\d+)", text))


def mapped_bytes(*pids: int) -> int:
    """Return the memory of processes with all that they share, an upper bound of the PSS."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


class Watched:
    """A sampler of this process and of ``pids``, which may change; it can wait for a sample."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.began = threading.Semaphore(0)
        self.meter = MemorySampler(self._asked)

    def peak(self) -> int:
        """Wait for a sample that began after this call."""
        while self.began.acquire(blocking=False):
            pass
        for _ in range(2):  # it has ended when the next one begins
            assert self.began.acquire(timeout=hang_s())
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
    """Memory of this process that a fork shares until one of the two writes to it."""
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        write_pages(held, size_bytes)
        yield held


def write_pages(held: mmap.mmap, size_bytes: int) -> None:
    for page in range(0, size_bytes, mmap.PAGESIZE):
        held[page] = 1


@needs_pss
def test_the_peak_of_this_process_is_kept(watched: Watched) -> None:
    assert watched.peak() > 10 * MIB
    with written_pages(200 * MIB):
        top = watched.peak()
        own, mapped = own_bytes(os.getpid()), mapped_bytes(os.getpid())
    assert 200 * MIB < own <= top <= mapped
    assert top <= watched.peak() <= mapped


@needs_pss
def test_processes_count_while_they_live_and_the_peak_stays(watched: Watched) -> None:
    with process_with(100 * MIB) as small, process_with(150 * MIB) as large:
        all_three = (os.getpid(), small.pid, large.pid)
        watched.pids += [small.pid]
        top = watched.peak()
        assert 100 * MIB < own_bytes(*all_three[:2]) <= top <= mapped_bytes(*all_three[:2])
        watched.pids += [large.pid]
        top = watched.peak()
        mapped = mapped_bytes(*all_three)
        assert 250 * MIB < own_bytes(*all_three) <= top <= mapped
    assert top <= watched.peak() <= mapped  # both are gone, and their ids are still asked for
    watched.pids.clear()
    assert top <= watched.peak() <= mapped


@needs_pss
def test_processes_one_after_another_do_not_add_up(watched: Watched) -> None:
    for _ in range(3):
        with process_with(100 * MIB) as process:
            watched.pids[:] = [process.pid]
            both = (os.getpid(), process.pid)
            top = watched.peak()
            assert 100 * MIB < own_bytes(*both) <= top <= mapped_bytes(*both)


@needs_pss
def test_shared_memory_counts_once(watched: Watched) -> None:
    with written_pages(200 * MIB), fork() as one, fork() as two, fork() as three:
        watched.pids += [one, two, three]
        top = watched.peak()
        assert 200 * MIB < own_bytes(os.getpid(), one, two, three) <= top
        assert top <= mapped_bytes(os.getpid()) + 3 * FORK_BYTES  # and not 3 times 200 MiB more


@needs_pss
def test_a_page_that_is_written_to_is_no_longer_shared(watched: Watched) -> None:
    with written_pages(200 * MIB) as held, fork() as child:
        write_pages(held, 100 * MIB)
        watched.pids += [child]  # what is shared is read anew for it
        top = watched.peak()
        assert 300 * MIB < own_bytes(os.getpid(), child) <= top
        assert top <= mapped_bytes(os.getpid()) + 100 * MIB + FORK_BYTES


class Read(list[int]):
    """Record the processes whose shared memory is read, which time alone does not cause here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        shared_bytes = sampler_module._shared_bytes

        def noted(pid: int) -> int:
            self.append(pid)
            return shared_bytes(pid)

        monkeypatch.setattr(sampler_module, "_shared_bytes", noted)
        monkeypatch.setattr(sampler_module, "_READ_SHARED_EVERY_S", math.inf)


@needs_pss
def test_for_a_new_peak_only_processes_that_have_grown_are_read(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(monkeypatch)
    with process_with(100 * MIB) as other:
        watched.pids += [other.pid]
        top = watched.peak()
        assert set(read) == {os.getpid(), other.pid}
        read.clear()
        # More than all that is held: a tenth would do, had earlier tests left nothing to be freed.
        with written_pages(top * 12 // 10):
            assert top < own_bytes(os.getpid(), other.pid) <= watched.peak()
        assert set(read) == {os.getpid()}


@needs_pss
def test_slow_growth_is_noticed_too(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    top = watched.peak()
    read = Read(monkeypatch)
    with ExitStack() as held:
        for _ in range(50):
            held.enter_context(written_pages(top // 20))
            watched.peak()
            if read:
                break
    assert read == [os.getpid()]


def test_a_process_that_is_gone_counts_nothing(watched: Watched) -> None:
    with fork() as child:
        pass
    watched.pids += [child]
    assert watched.peak() <= mapped_bytes(os.getpid())


def test_closing_ends_the_thread(watched: Watched) -> None:
    top = watched.peak()
    watched.meter.close()
    assert [thread for thread in threading.enumerate() if thread.name == "memory-sampler"] == []
    assert watched.meter.peak_bytes >= top
