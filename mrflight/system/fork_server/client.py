"""One process that loads Arrow once, and forks a job's servers and workers from it.

Five interpreters that each load Arrow and NumPy were most of a small job's
time: 1.2 processor seconds, where a fork takes some milliseconds. What the
fork server has loaded its children share, in memory as well.

The fork server runs nothing of its own, no Flight and no thread of Python's, so
that what is copied is at rest. Its children are sessions of their own with
fresh signal handlers; they report to nobody but it, and it tells the driver
the process id of each and, later, how it ended.

However the driver ends, the fork server sees it, ends what is left of its
children, and then removes the folders that they wrote to: the one process that
knows that nobody writes there any more. Where somebody has stopped the fork
server the driver, or its death, lets it go on; where it hangs the driver does
all that in its place; where it is killed the driver starts another one.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mrflight.system.closeable import Closeable
from mrflight.system.fork_server import main as forking
from mrflight.system.fork_server.child import ForkedProcess, Waits, kill
from mrflight.system.fork_server.process import ONE_THREAD, ForkServerProcess
from mrflight.system.process_info import has_ended, is_stopped, signal_name
from mrflight.system.progress import ProgressReport, QuietProgress

log = logging.getLogger(__name__)

_END_TIMEOUT_S = 2.0
"""Of the 5 s that an interrupted job has for its end. The fork server takes milliseconds."""

_WAKES = 4
"""In that time, as it may be stopped again, or be about to stop."""

_KILL_TIMEOUT_S = 1.0
"""Of processes that were killed, until they are gone."""

MOST_RESTARTS = 8
"""Of the fork server: what ends so many ends the next one too."""

_LOOK_EVERY_S = 0.002
"""Whether the fork server has ended: a job takes that much longer."""


def load_here(modules: Iterable[str]) -> None:
    """Load modules in this process, for a fork server that is to be a fork of it."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    forking.load(modules)


class ForkServer(Closeable):
    """The driver's side: started at once, ready when the first child is asked for.

    ``folders`` are removed once the driver is gone, or has closed this, and the last child ended.
    Where the process is killed another one takes its place for the next child. How the children
    of the first end nobody can tell: whoever waits for one ends it (see `ForkedProcess`).
    """

    def __init__(
        self,
        folders: Sequence[Path] = (),
        loads: Sequence[str] = (),
        *,
        from_here: bool = False,
        progress: ProgressReport | None = None,
    ) -> None:
        """``loads`` are the modules that are loaded before the first child is forked.

        ``from_here``: it is a fork of this process, and has what `load_here` has loaded. That
        takes half the time where this process needs Arrow as well, but it has to be ours alone:
        what others hold in it, the fork server and all its children would hold too. ``progress``
        is notified when it was killed.
        """
        self._children: list[ForkedProcess] = []
        self._folders = folders
        self._loads = loads
        self._progress = progress or QuietProgress()
        self._asking = threading.Lock()  # feeders of several workers may ask at once
        self._is_closed = False
        self._replaced = 0
        self._process = ForkServerProcess(folders, loads, from_here=from_here)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> list[int]:
        """Of it and its living children."""
        children = [child.living_pid() for child in list(self._children)]
        return [self.pid, *(pid for pid in children if pid is not None)]

    def start(
        self,
        name: str,
        target: str,
        arguments: Sequence[str],
        descriptors: Sequence[int] = (),
        stdout: int = 2,
        stderr: int = 2,
        waits: Waits | None = None,
    ) -> ForkedProcess:
        """Fork a child that calls ``target``, ``module:function``, and ends when that returns.

        The function gets ``arguments``, then its copies of ``descriptors``. The
        module is loaded before the fork, so that the next child finds it loaded.
        ``name`` is what the system's process list shows; ``waits`` are those for this child.
        """
        reading, writing = os.pipe()
        passed = [writing, stdout, stderr, *descriptors]
        with self._asking:
            process = self._there()
            try:
                process.ask(name, target, arguments, passed)
            except OSError:
                pass  # it is gone, which the child's end of the pipe tells as well
            finally:
                os.close(writing)
        child = ForkedProcess(name, reading, waits or Waits(), process.lose)
        self._children.append(child)
        return child

    def wake(self) -> None:
        """Let it go on where somebody has stopped it: nothing else can take its place."""
        if not self._has_ended() and is_stopped(self.pid):
            log.warning("the fork server, process %d, was stopped, and goes on", self.pid)
            kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the fork server and what is left of its children, whatever they do."""
        self._is_closed = True
        self._process.hang_up()
        for _ in range(_WAKES):
            self.wake()
            if _becomes_true(self._has_ended, _END_TIMEOUT_S / _WAKES):
                break
        else:
            self._end_by_force()
        for child in self._children:
            child.close()

    def _there(self) -> ForkServerProcess:
        """The process, or another one in its place where it was killed."""
        if self._is_closed or self._replaced == MOST_RESTARTS or not self._process.is_gone():
            return self._process
        _becomes_true(self._has_ended, _KILL_TIMEOUT_S)
        code = self._process.exit_code()
        how = f"was killed by {signal_name(-code)}" if code and code < 0 else "ended"
        self._progress.notify(
            f"the process that servers and workers are forked from {how}, and they end with it; it "
            "is started again"
        )
        self._replaced += 1
        self._process.hang_up()
        self._process = ForkServerProcess(self._folders, self._loads)
        return self._process

    def _has_ended(self) -> bool:
        return self._process.exit_code() is not None

    def _end_by_force(self) -> None:
        """Do what it would have done at its end, as it hangs."""
        log.warning("the fork server, process %d, does not end by itself and is killed", self.pid)
        pids = self.pids()
        for pid in reversed(pids):  # it last: as long as it is there, the ids are its children's
            kill(pid)
        _becomes_true(self._has_ended, _KILL_TIMEOUT_S)
        _becomes_true(lambda: all(map(has_ended, pids)), _KILL_TIMEOUT_S)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _becomes_true(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it holds before the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True
