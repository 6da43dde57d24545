"""The process of a fork server, as the driver has it: asked, and kept alive, by a socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mrflight.system.fork_server import main as forking
from mrflight.system.fork_server.child import NUMBER_BYTES

# One process per core: threads of linear algebra inside each only take turns.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


class ForkServerProcess:
    """Started at once; it ends when `hang_up` is called, or when this process is gone."""

    def __init__(
        self, folders: Sequence[Path], loads: Sequence[str], *, from_here: bool = False
    ) -> None:
        """``from_here``: it is a fork of this process, if that has no other thread.

        No other thread goes on in a fork, and what locks it held are held forever.
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

    def ask(self, name: str, target: str, arguments: Sequence[str], passed: Sequence[int]) -> None:
        """Ask for a child. OSError where the process is gone, and perhaps where it is about to."""
        body = json.dumps([name, target, list(arguments)]).encode()
        socket.send_fds(self._control, [len(body).to_bytes(NUMBER_BYTES, "little")], passed)
        self._control.sendall(body)

    def lose(self) -> None:
        """Somebody has seen its end, of which the system does not tell all at once."""
        self._is_lost = True

    def is_gone(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._is_lost or self.exit_code() is not None

    def exit_code(self) -> int | None:
        """How it ended, as `subprocess.Popen.returncode` has it; None while it runs."""
        return self._process.poll()

    def hang_up(self) -> None:
        """Let it end."""
        self._control.close()


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
        [sys.executable, "-P", "-m", "mrflight.system.fork_server.main", *given],
        stdin=subprocess.DEVNULL,
        stdout=2,  # the driver's stdout is for its result
        pass_fds=[control.fileno()],
        start_new_session=True,  # Ctrl-C is for the driver, which ends the children
        env={**ONE_THREAD, **os.environ},
    )
