"""Measure a process and all that it starts: wall time, CPU time and peak memory."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import psutil

_SAMPLE_EVERY_S = 0.05
_SAMPLING_SHARE = 0.05
"""The fraction of one core that sampling may take at most."""
_NEW_HIGH = 1.02
"""PSS is read when RSS has grown by this factor, since the kernel walks the pages for it."""
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


@dataclass(frozen=True)
class Timed:
    """The figures of a process and all its descendants, including those that detached themselves.

    ``peak_rss_bytes`` counts shared memory once for each process, and ``peak_pss_bytes`` once in
    all; it is None if the system does not report it. ``exit_code`` is None if the time limit ended
    the process, and negative after a signal.
    """

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    peak_pss_bytes: int | None
    exit_code: int | None
    stdout: str
    stderr: str


def run(command: Sequence[str], timeout_s: float) -> Timed:
    """Run ``command``; raise RuntimeError with its output if it fails or takes too long.

    All its processes have ended on return.
    """
    timed = measure(command, timeout_s)
    if timed.exit_code is None:
        raise RuntimeError(f"{list(command)} took longer than {timeout_s} s")
    if timed.exit_code:
        raise RuntimeError(f"{list(command)} exited with {timed.exit_code}:\n{timed.stderr}")
    return timed


def measure(command: Sequence[str], limit_s: float) -> Timed:
    """Run ``command`` to its end, or for ``limit_s``. All its processes have ended on return."""
    _adopt_orphans()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        family = _Family()
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, start_new_session=True, env=_environment()
        )
        try:
            ended = family.watch(process.pid, started + limit_s)
        finally:
            codes = family.end()
            process.returncode = codes.get(process.pid, -signal.SIGKILL)
        return Timed(
            wall_s=(ended or time.perf_counter()) - started,
            cpu_s=family.cpu_s(),
            peak_rss_bytes=family.peak_rss_bytes,
            peak_pss_bytes=family.peak_pss_bytes,
            exit_code=None if ended is None else process.returncode,
            stdout=_content(stdout),
            stderr=_content(stderr),
        )


def _adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that all can be seen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _environment() -> dict[str, str]:
    """Return our environment, with bytecode enabled: pip has compiled the modules of the peers."""
    kept = os.environ.copy()
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


class _Family:
    """All descendants of this process, except those that existed before."""

    def __init__(self) -> None:
        self.peak_rss_bytes = 0
        self.peak_pss_bytes: int | None = None
        self._myself = psutil.Process()
        self._strangers = {child.pid for child in self._myself.children(recursive=True)}
        self._pss_read_at = 0.0
        self._waited_cpu_s = 0.0
        self._seen_cpu_s: dict[int, float] = {}

    def watch(self, pid: int, until: float) -> float | None:
        """Sample until ``pid`` has ended and return when that was.

        None means that it still runs at ``until``.
        """
        ended: list[float] = []
        over = threading.Event()

        def wait() -> None:
            with suppress(ChildProcessError):  # it was killed and reaped
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                ended.append(time.perf_counter())
                over.set()

        threading.Thread(target=wait, daemon=True).start()
        pause_s = _SAMPLE_EVERY_S
        while not over.wait(max(0.0, min(pause_s, until - time.perf_counter()))):
            now = time.perf_counter()
            if now >= until:
                return None
            self._sample()
            pause_s = max(_SAMPLE_EVERY_S, (time.perf_counter() - now) / _SAMPLING_SHARE)
        return ended[0]

    def end(self) -> dict[int, int]:
        """Kill and reap the remaining processes, and return the exit codes of our own children."""
        codes: dict[int, int] = {}
        while family := self._members():
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            killed = {member.pid for member in family}
            for child in self._myself.children():
                if child.pid in killed:
                    _, status, usage = os.wait4(child.pid, 0)
                    codes[child.pid] = os.waitstatus_to_exitcode(status)
                    self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * _MAXRSS_UNIT)
                    self._waited_cpu_s += usage.ru_utime + usage.ru_stime
        return codes

    def cpu_s(self) -> float:
        """Return the user and system time of the reaped processes, or the sampled time if more.

        A process that ignores SIGCHLD does not get the times of its children.
        """
        return max(self._waited_cpu_s, sum(self._seen_cpu_s.values()))

    def _members(self) -> list[psutil.Process]:
        everyone = self._myself.children(recursive=True)
        return [process for process in everyone if process.pid not in self._strangers]

    def _sample(self) -> None:
        family = self._members()
        rss = sum(map(self._look_at, family))
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
        if rss > self._pss_read_at * _NEW_HIGH:
            self._pss_read_at = rss
            known = [pss for pss in map(_pss, family) if pss is not None]
            if known:
                self.peak_pss_bytes = max(self.peak_pss_bytes or 0, sum(known))

    def _look_at(self, process: psutil.Process) -> int:
        try:
            with process.oneshot():
                times = process.cpu_times()
                self._seen_cpu_s[process.pid] = times.user + times.system
                return int(process.memory_info().rss)
        except psutil.NoSuchProcess:
            return 0


def _pss(process: psutil.Process) -> int | None:
    try:
        pss: int | None = getattr(process.memory_full_info(), "pss", None)
        return pss
    except psutil.Error:
        return None  # it has ended, or belongs to another user
