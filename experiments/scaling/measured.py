"""The steps of a run: their time, the peak memory of two processes, and their messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil


class Step(msgspec.Struct):
    """One step of a job."""

    name: str
    seconds: float
    driver_cpu_s: float
    metadata_cpu_s: float
    driver_peak_bytes: int
    metadata_peak_bytes: int
    messages: dict[str, int]
    """The messages to the metadata server by kind, and as ``calls`` those to workers."""
    requests_bytes: dict[str, int]
    answers_bytes: dict[str, int]


@dataclass(frozen=True)
class Traffic:
    """The messages so far, their bytes, and the bytes of their answers."""

    messages: Counter[str]
    requests: Counter[str]
    answers: Counter[str]

    def since(self, before: Traffic) -> Traffic:
        return Traffic(
            self.messages - before.messages,
            self.requests - before.requests,
            self.answers - before.answers,
        )


@dataclass
class Steps:
    """Measures one step after another: this process, the driver's, and the metadata server's."""

    metadata_pid: int
    traffic: Callable[[], Traffic]
    done: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._processes = [psutil.Process(), psutil.Process(self.metadata_pid)]
        self._begin()

    def _begin(self) -> None:
        for process in self._processes:
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # resets the peak
        self._before = self.traffic(), [_cpu_s(process) for process in self._processes]
        self._began = time.monotonic()

    def end(self, name: str) -> None:
        """End the current step, and give it this name."""
        seconds = time.monotonic() - self._began
        earlier, cpu = self._before
        now = self.traffic().since(earlier)
        driver, metadata = (_cpu_s(p) - was for p, was in zip(self._processes, cpu, strict=True))
        peaks = [_peak_bytes(process.pid) for process in self._processes]
        totals = dict(now.messages), dict(now.requests), dict(now.answers)
        self.done.append(Step(name, seconds, driver, metadata, peaks[0], peaks[1], *totals))
        self._begin()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peak_bytes(pid: int) -> int:
    """Return the peak memory of a process since its ``clear_refs``."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has ended")
