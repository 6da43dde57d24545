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
server the driver lets it go on, and where it hangs the driver does all that in
its place.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from mrflight import forking
from mrflight.closing import Closes
from mrflight.forked_process import NUMBER_BYTES, ForkedProcess, Waits, kill
from mrflight.stopped_process import has_ended, is_stopped

log = logging.getLogger(__name__)

_END_TIMEOUT_S = 2.0
"""Of the 5 s that an interrupted job has for its end. The fork server takes milliseconds."""

_WAKES = 4
"""In that time, as it may be stopped again, or be about to stop."""

_KILL_TIMEOUT_S = 1.0
"""Of processes that were killed, until they are gone."""

_LOOK_EVERY_S = 0.002
"""Whether the fork server has ended: a job takes that much longer."""

# One process per core: threads of linear algebra inside each only take turns.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def load_here(modules: Iterable[str]) -> None:
    """Load modules in this process, for a fork server that is to be a fork of it."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    forking.load(modules)


class ForkServer(Closes):
    """The driver's side: started at once, ready when the first child is asked for.

    ``folders`` are removed once the driver is gone, or has closed this, and the last child ended.
    """

    def __init__(
        self, folders: Sequence[Path] = (), loads: Sequence[str] = (), *, from_here: bool = False
    ) -> None:
        """``loads`` are the modules that are loaded before the first child is forked.

        ``from_here``: it is a fork of this process, and has what `load_here` has loaded. That
        takes half the time where this process needs Arrow as well, but it has to be ours alone:
        what others hold in it, the fork server and all its children would hold too.
        """
        self._children: list[ForkedProcess] = []
        self._folders = folders
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            # No other thread goes on in a fork, and what locks it held are held forever.
            if from_here and threading.active_count() == 1:
                self._process: _Process = _Fork(theirs, folders, loads)
            else:
                self._process = _start(theirs, folders, loads)

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
        body = json.dumps([name, target, list(arguments)]).encode()
        try:
            passed = [writing, stdout, stderr, *descriptors]
            size = len(body).to_bytes(NUMBER_BYTES, "little")
            with self._asking:  # feeders of several workers may ask at once
                socket.send_fds(self._control, [size], passed)
                self._control.sendall(body)
        except OSError:
            pass  # the fork server is gone, which the child's end of the pipe tells as well
        finally:
            os.close(writing)
        child = ForkedProcess(name, reading, waits or Waits())
        self._children.append(child)
        return child

    def wake(self) -> None:
        """Let it go on where somebody has stopped it: nothing else can take its place."""
        if not self._has_ended() and is_stopped(self.pid):
            log.warning("the fork server, process %d, was stopped, and goes on", self.pid)
            kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the fork server and what is left of its children, whatever they do."""
        self._control.close()
        for _ in range(_WAKES):
            self.wake()
            if _becomes_true(self._has_ended, _END_TIMEOUT_S / _WAKES):
                break
        else:
            self._end_by_force()
        for child in self._children:
            child.close()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

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


class _Process(Protocol):
    """What is known of the fork server's process, a `subprocess.Popen` perhaps."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """How it ended; None while it runs."""


class _Fork:
    """A fork of this process."""

    def __init__(
        self, control: socket.socket, folders: Sequence[Path], loads: Sequence[str]
    ) -> None:
        self.pid = forking.fork_from_here(control, folders, loads)
        self._exit_code: int | None = None
        self._reaping = threading.Lock()

    def poll(self) -> int | None:
        with self._reaping:
            if self._exit_code is None:
                try:
                    ended, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # SIGCHLD is ignored: the system reaped it
                    self._exit_code = 0
                else:
                    self._exit_code = os.waitstatus_to_exitcode(status) if ended else None
            return self._exit_code


def _start(
    control: socket.socket, folders: Sequence[Path], loads: Sequence[str]
) -> subprocess.Popen[bytes]:
    """A process of its own."""
    given = [str(control.fileno()), json.dumps(list(loads)), *map(str, folders)]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "mrflight.forking", *given],
        stdin=subprocess.DEVNULL,
        stdout=2,  # the driver's stdout is for its result
        pass_fds=[control.fileno()],
        start_new_session=True,  # Ctrl-C is for the driver, which ends the children
        env={**_ONE_THREAD, **os.environ},
    )
