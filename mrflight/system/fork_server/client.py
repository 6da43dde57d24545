"""The driver's side of the fork server, which forks the servers and workers of a job.

The fork server is one process that loads Arrow once. Five interpreters that each load Arrow and
NumPy were most of the time of a small job: 1.2 processor seconds, while a fork takes some
milliseconds. Its children share what it has loaded, in memory, too.

The fork server runs no Flight and no Python threads of its own, so the state that is copied is
quiet. Its children are sessions of their own with fresh signal handlers. The fork server sends the
driver the process id of each child and, later, its exit code.

However the driver ends, the fork server notices it, ends the children that are left, and then
removes the folders that they wrote to: it is the only process that knows that nothing writes there
any more. If the fork server was stopped (SIGSTOP), the driver, or the driver's death, continues it.
If it hangs, the driver does this work in its place. If it is killed, the driver starts another one.

``multiprocessing.forkserver`` does less. Forking from one process halves the time of a job of 1,000
rows, and it would do that, too. But it cannot fork that process from the driver, which takes
another third off (CHANGELOG.md). It does not end the children and remove their folders when the
driver is killed, and the driver waits for ever if it is stopped or hangs.
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

from mrflight.system.closeable import Closeable
from mrflight.system.fork_server import main as fork_server_main
from mrflight.system.fork_server.child import (
    NUMBER_BYTES,
    ForkedProcess,
    Streams,
    WaitLimit,
    kill,
)
from mrflight.system.process_info import has_ended, is_stopped, signal_name
from mrflight.system.progress import ProgressReport, QuietProgress
from mrflight.system.restart_limit import RestartLimit

log = logging.getLogger(__name__)

_END_TIMEOUT_S = 2.0
"""How long the fork server may take to end, of the 5 s that an interrupted job has. It takes
milliseconds."""

_WAKES = 4
"""How often it is continued in that time, because it may be stopped again."""

_KILL_TIMEOUT_S = 1.0
"""How long killed processes may take to be gone."""

_POLL_INTERVAL_S = 0.002
"""How often to check whether the fork server has ended. A job takes that much longer."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""There is one process per core, so threads of linear algebra inside each only take turns."""


def load_here(modules: Iterable[str]) -> None:
    """Load modules in this process, from which a fork server will be forked."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    fork_server_main.load(modules)


class ForkServer(Closeable):
    """Starts the fork server at once; it is ready when the first child is requested.

    ``folders`` are removed when the driver is gone or has closed this, and the last child has
    ended. If the process is killed, another one is started for the next child. The children of the
    first one are then killed by those that wait for them (see `ForkedProcess`).
    """

    def __init__(
        self,
        folders: Sequence[Path] = (),
        loads: Sequence[str] = (),
        *,
        from_here: bool = False,
        progress: ProgressReport | None = None,
    ) -> None:
        """Load the modules ``loads`` before the first child is forked.

        With ``from_here`` it is a fork of this process, with everything that `load_here` has
        loaded. That takes half the time if this process needs Arrow, too. But this process must
        run nothing else: the fork server and all its children would keep the resources of other
        code open. ``progress`` is notified if the fork server is killed.
        """
        self._children: list[ForkedProcess] = []
        self._folders = folders
        self._loads = loads
        self._progress = progress or QuietProgress()
        self._requesting = threading.Lock()  # several threads may request one at once
        self._is_closed = False
        self._restarts = RestartLimit()
        self._process = ForkServerProcess(folders, loads, from_here=from_here)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> list[int]:
        """Return the process ids of the fork server and its living children."""
        children = [child.living_pid() for child in list(self._children)]
        return [self.pid, *(pid for pid in children if pid is not None)]

    def processes(self) -> dict[int, str]:
        """Return the names of the fork server and its living children by their process ids."""
        living = ((child.living_pid(), child.name) for child in list(self._children))
        return {self.pid: "fork server", **{pid: name for pid, name in living if pid is not None}}

    def start(
        self,
        name: str,
        target: str,
        arguments: Sequence[str],
        descriptors: Sequence[int] = (),
        streams: Streams = Streams(),  # noqa: B008 - immutable
        wait_limit: WaitLimit | None = None,
    ) -> ForkedProcess:
        """Fork a child that calls ``target``, ``module:function``, and ends when that returns.

        The function gets ``arguments``, and then its copies of ``descriptors``. The module is
        loaded before the fork, so that the next child has it, too. ``name`` is what the system's
        process list shows. ``wait_limit`` bounds the waits for this child.
        """
        reading, writing = os.pipe()
        passed = [writing, *streams, *descriptors]
        with self._requesting:
            process = self._running_process()
            try:
                process.request(name, target, arguments, passed)
            except OSError:
                pass  # it is gone, which the closed pipe of the child tells, too
            finally:
                os.close(writing)
        child = ForkedProcess(name, reading, wait_limit or WaitLimit(), process.mark_lost)
        self._children.append(child)
        return child

    def wake(self) -> None:
        """Continue the fork server if it is stopped, because nothing can replace it."""
        if not self._has_ended() and is_stopped(self.pid):
            log.warning("the fork server, process %d, was stopped and is continued", self.pid)
            kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the fork server and the children that are left, whatever they do."""
        self._is_closed = True
        self._process.close()
        for _ in range(_WAKES):
            self.wake()
            if _becomes_true(self._has_ended, _END_TIMEOUT_S / _WAKES):
                break
        else:
            self._end_by_force()
        for child in self._children:
            child.close()

    def _running_process(self) -> ForkServerProcess:
        """Return the process, or another one in its place if it was killed."""
        if self._is_closed or self._restarts.is_reached or not self._process.is_gone():
            return self._process
        _becomes_true(self._has_ended, _KILL_TIMEOUT_S)
        code = self._process.exit_code()
        how = f"was killed by {signal_name(-code)}" if code and code < 0 else "ended"
        self._progress.notify(
            f"the process that servers and workers are forked from {how}, and they end with it; it "
            "is started again"
        )
        self._restarts.note_restart()
        self._process.close()
        self._process = ForkServerProcess(self._folders, self._loads)
        return self._process

    def _has_ended(self) -> bool:
        return self._process.exit_code() is not None

    def _end_by_force(self) -> None:
        """Do what the fork server does at its end, because it hangs."""
        log.warning("the fork server, process %d, does not end by itself and is killed", self.pid)
        pids = self.pids()
        # The fork server comes last: as long as it lives, the ids are those of its children.
        for pid in reversed(pids):
            kill(pid)
        _becomes_true(self._has_ended, _KILL_TIMEOUT_S)
        _becomes_true(lambda: all(map(has_ended, pids)), _KILL_TIMEOUT_S)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _becomes_true(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Return whether the condition becomes true before the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True


class ForkServerProcess:
    """A fork server's process, started at once. It ends with `close`, or with this process.

    A socket carries the requests, and keeps it alive.
    """

    def __init__(
        self, folders: Sequence[Path], loads: Sequence[str], *, from_here: bool = False
    ) -> None:
        """Fork this process if ``from_here``, and if it has no other thread.

        Other threads do not run in a fork, and the locks that they held are held for ever.
        """
        self._control, theirs = socket.socketpair()
        with theirs:
            if from_here and threading.active_count() == 1:
                self._process: _Process = _Fork(theirs, folders, loads)
            else:
                self._process = _start(theirs, folders, loads)
        self._is_lost = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(
        self, name: str, target: str, arguments: Sequence[str], passed: Sequence[int]
    ) -> None:
        """Request a child; raises OSError if the process is gone, or perhaps if it is ending."""
        body = json.dumps([name, target, list(arguments)]).encode()
        socket.send_fds(self._control, [len(body).to_bytes(NUMBER_BYTES, "little")], passed)
        self._control.sendall(body)

    def mark_lost(self) -> None:
        """Record that the process has ended; the system may not say so yet."""
        self._is_lost = True

    def is_gone(self) -> bool:
        """Return whether it has ended, or is ending."""
        return self._is_lost or self.exit_code() is not None

    def exit_code(self) -> int | None:
        """Return how it ended, like `subprocess.Popen.returncode`; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """Let the process end."""
        self._control.close()


class _Process(Protocol):
    """The fork server's process: a `subprocess.Popen`, or a fork."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""


class _Fork:
    """A fork of this process."""

    def __init__(
        self, control: socket.socket, folders: Sequence[Path], loads: Sequence[str]
    ) -> None:
        self.pid = fork_server_main.fork_from_here(control, folders, loads)
        self._exit_code: int | None = None
        self._reaping = threading.Lock()

    def poll(self) -> int | None:
        with self._reaping:
            if self._exit_code is None:
                try:
                    ended, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # SIGCHLD is ignored, so the system has reaped it
                    self._exit_code = 0
                else:
                    self._exit_code = os.waitstatus_to_exitcode(status) if ended else None
            return self._exit_code


def _start(
    control: socket.socket, folders: Sequence[Path], loads: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start a process with an interpreter of its own."""
    given = [str(control.fileno()), json.dumps(list(loads)), *map(str, folders)]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "mrflight.system.fork_server.main", *given],
        stdin=subprocess.DEVNULL,
        stdout=2,  # the driver's stdout is for its result
        pass_fds=[control.fileno()],
        start_new_session=True,  # Ctrl-C is only for the driver, which ends the children
        env={**_ONE_THREAD, **os.environ},
    )
