"""A process from start to end: how long it took, and the most memory that it held."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_SAMPLE_EVERY_S = 0.05


@dataclass(frozen=True)
class Timed:
    """``peak_rss_bytes`` is summed over the process and all below it; None without psutil.

    Memory that processes share counts once for each of them.
    """

    wall_s: float
    peak_rss_bytes: int | None
    stdout: str


def run(command: Sequence[str], timeout_s: float) -> Timed:
    """Run ``command``; RuntimeError with what it said if it fails or takes too long.

    Whatever happens, nothing that it started is left.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with _PeakRss(process.pid) as peak:
            stdout, stderr = process.communicate(timeout=timeout_s)
            wall_s = time.perf_counter() - started
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"{list(command)} took longer than {timeout_s} s") from late
    finally:
        _end_session(process)
    if process.returncode:
        raise RuntimeError(f"{list(command)} exited with {process.returncode}:\n{stderr}")
    return Timed(wall_s, peak.bytes, stdout)


def _end_session(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _PeakRss:
    """Samples a process and its descendants from a thread, in a ``with`` block."""

    def __init__(self, pid: int) -> None:
        self.bytes: int | None = None
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        try:
            import psutil
        except ImportError:
            return
        while not self._over.wait(_SAMPLE_EVERY_S):
            try:
                root = psutil.Process(self._pid)
                family = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.bytes = max(self.bytes or 0, sum(map(_rss, family)))


def _rss(process: object) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)  # type: ignore[attr-defined]  # psutil has no types
    except psutil.NoSuchProcess:
        return 0
