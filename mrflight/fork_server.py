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
knows that nobody writes there any more.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from mrflight.closing import Closes
from mrflight.errors import JobFailedError

_NUMBER_BYTES = 8
_MOST_DESCRIPTORS = 8
_START_TIMEOUT_S = 60.0


class ForkServer(Closes):
    """The driver's side: started at once, ready when the first child is asked for.

    ``folders`` are removed once the driver is gone, or has closed this, and the last child ended.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._children: list[ForkedProcess] = []
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "mrflight.fork_server",
                    str(theirs.fileno()),
                    *folders,
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the driver's stdout is for its result
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the driver, which ends the children
                # One process per core: threads of linear algebra inside each only take turns.
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            )

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
    ) -> ForkedProcess:
        """Fork a child that calls ``target``, ``module:function``, and ends when that returns.

        The function gets ``arguments``, then its copies of ``descriptors``. The
        module is loaded before the fork, so that the next child finds it loaded.
        ``name`` is what the system's process list shows.
        """
        reading, writing = os.pipe()
        body = json.dumps([name, target, list(arguments)]).encode()
        try:
            passed = [writing, stdout, stderr, *descriptors]
            size = len(body).to_bytes(_NUMBER_BYTES, "little")
            with self._asking:  # feeders of several workers may ask at once
                socket.send_fds(self._control, [size], passed)
                self._control.sendall(body)
        except OSError:
            pass  # the fork server is gone, which the child's end of the pipe tells as well
        finally:
            os.close(writing)
        child = ForkedProcess(name, reading)
        self._children.append(child)
        return child

    def close(self) -> None:
        """End the fork server and what is left of its children."""
        self._control.close()
        self._process.wait()
        for child in self._children:
            child.close()


class ForkedProcess(Closes):
    """A child of the fork server. Its `fileno` becomes readable when it has ended.

    Safe for several threads; none may wait for it when it is closed.
    """

    def __init__(self, name: str, status: int) -> None:
        self.name = name
        self._status = status
        self._reading = threading.Lock()
        self._pid: int | None = None
        self._exit_code: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; waits for the fork. JobFailedError where there was none."""
        with self._reading:  # or who reads it first leaves the other one waiting
            if self._pid is None and self._is_readable(_START_TIMEOUT_S):
                self._pid = self._read()
        if self._pid is None:
            raise JobFailedError(f"{self.name} was not started: the fork server ended or hangs")
        return self._pid

    def living_pid(self) -> int | None:
        """Its process id while it is known to live; does not wait."""
        if not self._reading.acquire(blocking=False):
            return self._pid  # another thread reads, or waits for the fork
        try:
            if self._status < 0:
                return None
            if self._pid is None and self._is_readable(0):
                self._pid = self._read()
            return None if self._pid is None or self._is_readable(0) else self._pid
        finally:
            self._reading.release()

    def fileno(self) -> int:
        _ = self.pid  # which comes first
        return self._status

    def wait(self, timeout_s: float | None = None) -> int | None:
        """How it ended, as `subprocess.Popen.returncode` has it; None while it runs.

        A child whose fork server has ended is ended here.
        """
        pid = self.pid
        if self._exit_code is None and self._is_readable(timeout_s):
            with self._reading:
                if self._exit_code is None:
                    code = self._read()
                    if code is None:
                        _kill(pid)
                    self._exit_code = -signal.SIGKILL if code is None else code
        return self._exit_code

    def send_signal(self, number: int) -> None:
        """Signal the child, unless it has ended."""
        if self.wait(0) is None:  # so that the id is still its own
            _kill(self.pid, number)

    def close(self) -> None:
        """Let go of it, whether it has ended or not."""
        with self._reading:
            if self._status >= 0:
                os.close(self._status)
                self._status = -1

    def _is_readable(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))

    def _read(self) -> int | None:
        """The next number; None where the fork server ended."""
        data = os.read(self._status, _NUMBER_BYTES)  # written in one piece
        return int.from_bytes(data, "little", signed=True) if data else None


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class _Server:
    """The fork server's own side."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork what is asked for, until the driver is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._answer)
            selector.register(self._woken, selectors.EVENT_READ, self._reap)
            goes_on = True
            while goes_on:
                for key, _ in selector.select():
                    goes_on = key.data() and goes_on

    def end(self, folders: Sequence[str]) -> None:
        """End the children that are left, then remove ``folders``."""
        for pid in self._children:
            _kill(pid)
        for pid in self._children:
            os.waitpid(pid, 0)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _answer(self) -> bool:
        """Fork one child; False where the driver is gone."""
        size, descriptors, _, _ = socket.recv_fds(self._control, _NUMBER_BYTES, _MOST_DESCRIPTORS)
        if len(size) < _NUMBER_BYTES:
            return False
        body = self._control.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
        name, target, arguments = json.loads(body)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        module, _, function = target.partition(":")
        with suppress(Exception):  # the child meets it again, and says so where it should
            import_module(module)
        status, stdout, stderr, *kept = descriptors
        gc.freeze()  # or the collector's marks would copy every page of the children
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: there are those of allocators, which know of forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            self._let_go()
            _become(name, module, function, [*arguments, *kept], stdout, stderr, unused=status)
        self._children[pid] = status
        _tell(status, pid)
        for descriptor in (stdout, stderr, *kept):
            os.close(descriptor)
        return True

    def _reap(self) -> bool:
        """Tell how the children ended that did; True, as it goes on."""
        os.read(self._woken, 4096)
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                told = self._children.pop(pid)
                _tell(told, os.waitstatus_to_exitcode(status))
                os.close(told)
        return True

    def _let_go(self) -> None:
        """In a child: of all that is the fork server's."""
        signal.set_wakeup_fd(-1)
        for descriptor in (self._woken, self._wake, *self._children.values()):
            os.close(descriptor)
        self._control.close()


def _tell(status: int, number: int) -> None:
    try:
        os.write(status, number.to_bytes(_NUMBER_BYTES, "little", signed=True))
    except BrokenPipeError:
        return  # the driver does not want to know


def _become(
    name: str,
    module: str,
    function: str,
    arguments: list[str | int],
    stdout: int,
    stderr: int,
    unused: int,
) -> NoReturn:
    """In a child: be a process of its own, call the function, and end."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(unused)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for descriptor in {stdout, stderr}:
            os.close(descriptor)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # a worker ends by SIGKILL
        _show_as(name)
        getattr(import_module(module), function)(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # the end of the process: there is nobody above
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what the fork server would do at its end is not ours


def _show_as(name: str) -> None:
    """Name the process, as ``ps -e`` and ``top`` show it, where the system has a place for that."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write(name)
    except OSError:
        return


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as control:
        server = _Server(control)
        server.serve()
        server.end(sys.argv[2:])
