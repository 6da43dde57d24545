"""Samples the machine and the processes of a system once a second, as section 4.1.5 does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from experiments.streaming.outcome import Second

EVERY_S = 1.0


class Sampler:
    """Counts of a family of processes: those given, and all that they start."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self._cpu_s: dict[int, float] = {}
        self._bytes: dict[int, int] = {}
        self._samples: list[Second] = []

    def between(self, began: float, ended: float) -> list[Second]:
        """Return the samples whose second lies in a time of day, relative to its begin."""
        return [
            Second(
                round(each.at - began, 3),
                each.cpu_percent,
                each.disk_bytes,
                round(each.own_cpu_s, 4),
                each.own_bytes,
            )
            for each in self._samples
            if began + EVERY_S / 2 <= each.at <= ended + EVERY_S / 2
        ]

    def run(self) -> None:
        """Sample until `stop`."""
        psutil.cpu_percent()
        cpu_s, written, disk, at = *self._family(), _disk_bytes(), time.time()
        while not self._stop.wait(EVERY_S):
            own, own_bytes, now_disk, now = *self._family(), _disk_bytes(), time.time()
            took = now - at
            self._samples.append(
                Second(
                    now,
                    psutil.cpu_percent(),
                    round((now_disk - disk) / took),
                    (own - cpu_s) / took,
                    round((own_bytes - written) / took),
                )
            )
            cpu_s, written, disk, at = own, own_bytes, now_disk, now

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    def _family(self) -> tuple[float, int]:
        """Return what all processes have used so far, also those that have ended meanwhile."""
        for pid in self._pids:
            with suppress(psutil.NoSuchProcess):
                first = psutil.Process(pid)
                for each in (first, *first.children(recursive=True)):
                    self._look_at(each)
        return sum(self._cpu_s.values()), sum(self._bytes.values())

    def _look_at(self, process: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            self._cpu_s[process.pid] = times.user + times.system
            self._bytes[process.pid] = process.io_counters().write_bytes


@contextmanager
def sampling(pids: Sequence[int]) -> Iterator[Sampler]:
    """Sample inside, in a thread."""
    sampler = Sampler(pids)
    thread = threading.Thread(target=sampler.run)
    thread.start()
    try:
        yield sampler
    finally:
        sampler.stop()
        thread.join()


def _disk_bytes() -> int:
    counters = psutil.disk_io_counters()
    return 0 if counters is None else counters.write_bytes
