"""The most memory that a job's processes held together, measured while they run."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mrflight.system.closeable import Closes

_SAMPLE_EVERY_S = 0.05
_LONGEST_PAUSE_S = 0.25
_TIME_SHARE = 0.1
"""Of one core, what looking takes. A look at the PSS of five processes is 5 to 50 ms."""
_SHARED_EVERY_S = 4.0
"""What processes share changes little once they have started. Read every second it was 2 % of the
time of a job on two cores."""
_NEW_PEAK = 1.1
_GROWN = 1.05
"""Of a process, so that what it shares is read for a new peak. Of a job's six two or three grow."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HAS_PROC = Path("/proc/self/statm").exists()


class MemoryMeter(Closes):
    """Samples this process and those of ``pids`` from a thread, until it is closed.

    On Linux what processes share, Arrow's own code above all, counts once (PSS);
    elsewhere it counts for each (RSS). Reading a PSS makes the kernel walk all
    pages, so it is read every four seconds, when processes come and go, and before a
    new peak of those that have grown; how much less it is than the RSS is taken off
    the RSS, which is read 20 times a second, or 4 times after a look that took long.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._peak_bytes = 0
        self._read_at_bytes = 0
        self._shared: dict[int, _Shared] = {}
        self._shared_known_at = -math.inf
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory meter", daemon=True)
        self._thread.start()

    @property
    def peak_bytes(self) -> int:
        """The peak so far."""
        return self._peak_bytes

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _sample(self) -> None:
        pause_s = _SAMPLE_EVERY_S
        while not self._closed.wait(pause_s):
            began_s = time.thread_time()
            self._look()
            took_s = time.thread_time() - began_s
            pause_s = min(max(_SAMPLE_EVERY_S, took_s / _TIME_SHARE), _LONGEST_PAUSE_S)

    def _look(self) -> None:
        rss = {pid: _rss_bytes(pid) for pid in (os.getpid(), *self._pids())}
        now = time.monotonic()
        if now - self._shared_known_at >= _SHARED_EVERY_S or rss.keys() != self._shared.keys():
            self._shared_known_at, self._shared = now, {}
            stale = list(rss)
        elif self._held(rss) > self._read_at_bytes * _NEW_PEAK:
            stale = [pid for pid, size in rss.items() if size > self._shared[pid].of_rss * _GROWN]
        else:
            stale = []
        for pid in stale:
            if self._closed.is_set():
                return  # whoever closes waits for this look
            rss[pid] = _rss_bytes(pid)
            self._shared[pid] = _Shared(_shared_bytes(pid), rss[pid])
        held = self._held(rss)
        self._peak_bytes = max(self._peak_bytes, held)
        if stale:  # not at each look: a slow growth would never be a tenth more than the last
            self._read_at_bytes = max(self._read_at_bytes, held)

    def _held(self, rss: Mapping[int, int]) -> int:
        return sum(rss.values()) - sum(shared.size_bytes for shared in self._shared.values())


class _Shared(NamedTuple):
    """What a process shares, and its RSS when that was read."""

    size_bytes: int
    of_rss: int


def _rss_bytes(pid: int) -> int:
    """Of one process; 0 where it has ended."""
    if not _HAS_PROC:
        return _portable_rss_bytes(pid)
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _shared_bytes(pid: int) -> int:
    """What the RSS of one process counts that others count as well."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()[1:]
        kilobytes = {name: int(value) for name, value, *_ in map(bytes.split, lines)}
        return (kilobytes[b"Rss:"] - kilobytes[b"Pss:"]) * 1024
    except (OSError, KeyError):  # it has ended, or this is no Linux
        return 0


def _portable_rss_bytes(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
