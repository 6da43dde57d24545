"""Makes a process hang: either stopped by a signal, or without being stopped."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import psutil

from tests.support.faults.faulty_run import stop

# sys/ptrace.h and wait.h
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_OF_ANY_KIND = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hung(process: psutil.Process) -> Iterator[None]:
    """It does nothing inside, and what waits for it there does so in vain; it can be killed.

    It is a descendant of this process.
    """
    _ptrace(_SEIZE, process.pid)
    _ptrace(_INTERRUPT, process.pid)
    os.waitpid(process.pid, _OF_ANY_KIND)  # until it does; nobody else is to be told of that
    over = threading.Event()
    reaper = threading.Thread(target=_reap, args=[process.pid, over])
    reaper.start()
    try:
        yield
    finally:
        over.set()
        reaper.join()
        with suppress(ProcessLookupError):  # as it was killed
            _ptrace(_DETACH, process.pid)


def _ptrace(request: int, pid: int) -> None:
    if _libc.ptrace(ctypes.c_long(request), ctypes.c_long(pid), None, None) == -1:
        raise OSError(ctypes.get_errno(), f"process {pid} cannot be held")


def _reap(pid: int, over: threading.Event) -> None:
    """Once it was killed: its parent is not told of it before whoever holds it was."""
    with suppress(ChildProcessError):  # its parent is this process, and has been told
        while not over.wait(0.005):
            ended, status = os.waitpid(pid, os.WNOHANG | _OF_ANY_KIND)
            if ended and not os.WIFSTOPPED(status):
                return


def unresponsive(process: psutil.Process, how: str) -> AbstractContextManager[None]:
    """One that "hangs" inside, or "is stopped" and stays so until somebody lets it go on."""
    if how == "hangs":
        return hung(process)
    stop(process)
    return nullcontext()
