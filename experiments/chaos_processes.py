"""Find, signal and describe the processes of a run by an environment variable that all inherit."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

MARK = "MRFLIGHT_CHAOS_RUN"
_MAX_NAME = 15
"""The bytes of a process's name that the system keeps."""
_POLL_S = 0.002
_SIGNAL_TIMEOUT_S = 5.0
"""The time within which a signal that no process can ignore must have its effect."""


def processes_of(mark: str, name: str = "") -> list[psutil.Process]:
    """Return the running processes whose names begin with ``name``, sorted by name."""
    # psutil is not used for this: it takes 20 ms, and stages are shorter than that.
    carried = f"{MARK}={mark}".encode()
    found = []
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdecimal()):
        with contextlib.suppress(psutil.Error, OSError):
            comm = _comm(pid)
            if not comm.startswith(name[:_MAX_NAME]):
                continue
            if carried in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append((comm, pid, psutil.Process(pid)))
    return [process for _, _, process in sorted(found, key=lambda one: one[:2]) if _runs(process)]


def describe(process: psutil.Process) -> str:
    """Return the name and the id of a process, for messages."""
    with contextlib.suppress(OSError):
        return f"{_comm(process.pid)} ({process.pid})"
    return f"({process.pid}), which has ended"


def kill(process: psutil.Process) -> None:
    """Send SIGKILL and wait for the end. Raise NoSuchProcess if the process had ended before.

    TimeoutError is raised if it still runs afterwards.
    """
    _must_run(process)
    process.send_signal(signal.SIGKILL)
    _await(lambda: not _runs(process), f"{process.pid} does not die")


def stop(process: psutil.Process) -> None:
    """Send SIGSTOP and wait until the process is stopped.

    NoSuchProcess is raised if it has ended, and TimeoutError if it goes on running.
    """
    _must_run(process)
    process.send_signal(signal.SIGSTOP)
    _await(
        lambda: _status(process) == psutil.STATUS_STOPPED or not _runs(process),
        f"{process.pid} does not stop",
    )
    _must_run(process)


def wake(process: psutil.Process) -> None:
    """Send SIGCONT to a process that may have been killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)


def dump_stacks(processes: list[psutil.Process], logs: Path) -> str:
    """End processes by SIGABRT, which makes each write its stacks, and return their ``logs``.

    The processes need PYTHONFAULTHANDLER. Those that do not end are left alone.
    """
    for process in processes:
        wake(process)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGABRT)
    with contextlib.suppress(TimeoutError):
        _await(lambda: not any(map(_runs, processes)), "some do not end")
    found = []
    # rglob fails if folders are removed meanwhile, as a driver's fork server does.
    paths = [Path(folder, name) for folder, _, names in os.walk(logs) for name in names]
    for path in sorted(path for path in paths if path.suffix == ".log"):
        with contextlib.suppress(OSError):
            found.append(f"--- {path.name}\n{path.read_text(errors='replace')[-8000:]}")
    return "\n".join(found)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Return whether the condition came true in time."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def _await(condition: Callable[[], bool], failure: str) -> None:
    if not wait_until(condition, _SIGNAL_TIMEOUT_S):
        raise TimeoutError(failure)


def _must_run(process: psutil.Process) -> None:
    if not _runs(process):
        raise psutil.NoSuchProcess(process.pid)


def _comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and _status(process) not in (
        psutil.STATUS_ZOMBIE,
        psutil.STATUS_DEAD,
    )
