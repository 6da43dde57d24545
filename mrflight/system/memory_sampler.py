"""Measures the most memory that a job's processes hold together, while they run.

The files of /proc are read here and not by psutil, whose import alone takes 8 to 16 ms of the
driver's start.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mrflight.system.closeable import Closeable

_SAMPLE_EVERY_S = 0.05
_FIRST_SAMPLE_S = 0.02
"""A job of some thousand rows takes 40 ms once its processes are being started."""
_MAX_PAUSE_S = 0.25
_MAX_CPU_FRACTION = 0.1
"""How much of one core sampling may take. Reading the PSS of five processes takes 5 to 50 ms."""
_READ_SHARED_EVERY_S = 4.0
"""What processes share changes little once they have started. Reading it every second took 2 % of
the time of a job on two cores."""
_NEW_PEAK = 1.25
"""How much more must be held for shared memory to be read before a new peak is recorded. At 1.1 it
was read 43 times in a job of 15 million rows, which took 0.14 s of processor time."""
_GROWN = 1.05
"""How much a process must have grown for its PSS to be read at a new peak. Two or three of a
job's six processes grow."""
_OBSERVE_EVERY_S = 1.0
_STATM_BYTES = 256
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HAS_PROC = Path("/proc/self/statm").exists()


class MemorySampler(Closeable):
    """Samples the memory of this process and of ``pids`` in a thread, until it is closed.

    On Linux memory that processes share, above all Arrow's own code, counts once (PSS); elsewhere
    it counts for each process (RSS). Reading a PSS makes the kernel walk all pages. So it is read
    every four seconds, when processes start or end, and, for those that have grown, before a peak
    that is a quarter higher is recorded. In between its difference to the RSS is subtracted from
    the RSS, which is read 20 times a second, or 4 times if a sample took long.
    """

    def __init__(
        self,
        pids: Callable[[], Iterable[int]],
        observe: Callable[[Mapping[int, int]], None] = lambda _: None,
    ) -> None:
        """``observe`` gets the bytes of each process once a second, and at the end."""
        self._pids = pids
        self._observe = observe
        self._observed_at = -math.inf
        self._held: dict[int, int] = {}
        """The bytes of each process at the last sample."""
        self._peak_bytes = 0
        self._read_at_bytes = 0
        self._shared: dict[int, _Shared] = {}
        self._shared_known_at = -math.inf
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)
        self._thread.start()

    @property
    def peak_bytes(self) -> int:
        """The peak until now."""
        return self._peak_bytes

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        if not self._peak_bytes:
            self._take_sample()
        self._observe(self._held)

    def _sample(self) -> None:
        pause_s = _FIRST_SAMPLE_S
        while not self._closed.wait(pause_s):
            began_s = time.thread_time()
            self._take_sample()
            took_s = time.thread_time() - began_s
            pause_s = min(max(_SAMPLE_EVERY_S, took_s / _MAX_CPU_FRACTION), _MAX_PAUSE_S)

    def _take_sample(self) -> None:
        rss = {pid: _rss_bytes(pid) for pid in (os.getpid(), *self._pids())}
        now = time.monotonic()
        if now - self._shared_known_at >= _READ_SHARED_EVERY_S or rss.keys() != self._shared.keys():
            self._shared_known_at, self._shared = now, {}
            stale = list(rss)
        elif self._pss_bytes(rss) > self._read_at_bytes * _NEW_PEAK:
            stale = [
                pid for pid, size in rss.items() if size > self._shared[pid].rss_bytes * _GROWN
            ]
        else:
            stale = []
        for pid in stale:
            if self._closed.is_set():
                return  # `close` waits for this sample
            rss[pid] = _rss_bytes(pid)
            self._shared[pid] = _Shared(_shared_bytes(pid), rss[pid])
        self._held = {pid: size - self._shared[pid].size_bytes for pid, size in rss.items() if size}
        held = self._pss_bytes(rss)
        self._peak_bytes = max(self._peak_bytes, held)
        if stale:  # only then, or slow growth would never be a quarter above the last sample
            self._read_at_bytes = max(self._read_at_bytes, held)
        if now - self._observed_at >= _OBSERVE_EVERY_S:
            self._observed_at = now
            self._observe(self._held)

    def _pss_bytes(self, rss: Mapping[int, int]) -> int:
        return sum(rss.values()) - sum(shared.size_bytes for shared in self._shared.values())


class _Shared(NamedTuple):
    """How much memory a process shares, and its RSS when that was read."""

    size_bytes: int
    rss_bytes: int


def _rss_bytes(pid: int) -> int:
    """Return the RSS of a process; 0 if it has ended."""
    if not _HAS_PROC:
        return _portable_rss_bytes(pid)
    try:
        file = os.open(f"/proc/{pid}/statm", os.O_RDONLY)  # in a third of the time of a Path
        try:
            return int(os.read(file, _STATM_BYTES).split()[1]) * _PAGE_BYTES
        finally:
            os.close(file)
    except (OSError, IndexError):
        return 0


def _shared_bytes(pid: int) -> int:
    """Return how much of a process's RSS is shared memory that others count, too."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()[1:]
        kilobytes = {name: int(value) for name, value, *_ in map(bytes.split, lines)}
        return (kilobytes[b"Rss:"] - kilobytes[b"Pss:"]) * 1024
    except (OSError, KeyError):  # it has ended, or this is not Linux
        return 0


def _portable_rss_bytes(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
