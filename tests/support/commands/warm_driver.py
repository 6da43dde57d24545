"""Drivers, servers and fork servers, forked from a process that has imported what they import.

Half of the processor time of a small job goes into imports, and hundreds of tests run one. So a
worker of pytest keeps one warm process, and forks from it what a job or a standing cluster starts:
the module itself, such as `mrflight.driver`, is run again in the child, as `python -m` does it, and
its streams, environment and current folder are those that the test asks for. Tests of the start
itself, and of signals, run a real command.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NoReturn, Self

MODULES = [
    *("pyarrow", "pyarrow.flight", "pyarrow.parquet", "pyarrow.csv", "numpy", "deltalake"),
    *("mrflight.scheduler.job", "mrflight.runtime.worker"),
    *(
        "mrflight.sinks.delta.sink",
        "mrflight.sinks.folder.sink",
        "mrflight.sinks.parts.part_writer",
    ),
    *("mrflight.sources.csv_source", "mrflight.sources.parquet_source"),
    *("mrflight.servers.metadata", "mrflight.servers.data"),
]
"""Modules that are loaded before a driver is forked. A driver imports what else it needs."""

_WIDTH = 16
"""The bytes in which the warm process tells an id, and then an exit code."""

FORK_SERVER = "mrflight.system.fork_server.main"
_PASSED = 3
"""The descriptor that a fork server is controlled by."""

MARK = "MRFLIGHT_TEST_RUN"
"""The variable by which `tests.support.commands.leftovers` knows the processes of a job."""
NO_MARK = "-" * 64

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""As a driver and a fork server have it before they load NumPy."""

SET_BY_IMPORTS = {"GRPC_VERBOSITY", "RAY_CLIENT_MODE", *ONE_THREAD}
"""Variables that ours and Ray's modules set to their own default as they are imported."""

RAY_TOKEN = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
"""Set while a Ray runs that tests share, and read by the gateway to Ray, a process of its own."""

MAY_DIFFER = {"TMPDIR", "PYTEST_CURRENT_TEST", *RAY_TOKEN, *SET_BY_IMPORTS} | (
    {MARK} if sys.platform == "linux" else set()
)
"""Variables that nothing looks at as it is imported."""


class ForkedDriver:
    """A process that runs, as `subprocess.Popen` has it; the warm process tells how it ended."""

    def __init__(self, warm: socket.socket) -> None:
        self._warm = warm
        self._asking = threading.Lock()
        self.pid = int(warm.recv(_WIDTH))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._asking:
            if self.returncode is None:
                if not select.select([self._warm], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                answer = self._warm.recv(_WIDTH)
                self._warm.close()
                assert answer, "the warm process has ended"
                self.returncode = int(answer)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedServer(ForkedDriver):
    """One with its stdout, which is closed and waited for at the end of a ``with``."""

    def __init__(self, warm: socket.socket, stdout: IO[str]) -> None:
        super().__init__(warm)
        self.stdout = stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()


class WarmDriver:
    """The warm process; it ends with the one that made it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, **ONE_THREAD}
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**self._environment, MARK: NO_MARK},
            )

    def takes(self, environment: Mapping[str, str]) -> bool:
        """Return whether a driver would import the same modules in this environment."""
        names = environment.keys() | self._environment.keys()
        return all(
            environment.get(name) == self._environment.get(name) for name in names - MAY_DIFFER
        )

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run the driver with some words, to its end. Raises subprocess.TimeoutExpired."""
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            code = self.start(words, environment, stdout.fileno(), stderr.fileno()).wait(timeout_s)
            for stream in (stdout, stderr):
                stream.seek(0)
            return subprocess.CompletedProcess(list(words), code, stdout.read(), stderr.read())

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int
    ) -> ForkedDriver:
        """Begin to run the driver with some words, which writes to these descriptors."""
        return ForkedDriver(self._fork(["mrflight.driver", *words], environment, stdout, stderr))

    def start_server(
        self, command: Sequence[str], environment: Mapping[str, str], stderr: int
    ) -> ForkedServer:
        """Begin to run a server: a module and its words."""
        reading, writing = os.pipe()
        try:
            return ForkedServer(
                self._fork(command, environment, writing, stderr), open(reading, encoding="utf-8")
            )
        finally:
            os.close(writing)

    def start_fork_server(
        self, control: int, words: Sequence[str], environment: Mapping[str, str]
    ) -> ForkedDriver:
        """Begin to run a fork server; it is a session of its own."""
        command = [FORK_SERVER, str(_PASSED), *words]
        return ForkedDriver(self._fork(command, environment, 2, 2, control))

    def _fork(
        self, command: Sequence[str], environment: Mapping[str, str], *descriptors: int
    ) -> socket.socket:
        """Return the channel on which the warm process tells of the one that it forked."""
        ours, theirs = socket.socketpair()
        with theirs:
            request = [list(command), dict(environment), os.getcwd()]
            self._send(request, [theirs.fileno(), *descriptors])
        return ours

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _send(self, request: list[Any], descriptors: Sequence[int]) -> None:
        body = json.dumps(request).encode()
        fds = array.array("i", descriptors)
        header = len(body).to_bytes(4, "little")
        self._socket.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self._socket.sendall(body)


def serve(control: socket.socket) -> None:
    """Fork a process for each request, and answer with its exit code, until there are no more."""
    for module in MODULES:
        with suppress(ImportError):
            import_module(module)
    gc.freeze()
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                woken.recv(4096)
                _answer_ended(running)
            if control in ready:
                header, fds, *_ = socket.recv_fds(control, 4, 4)
                if not header:
                    return
                body = _receive(control, int.from_bytes(header, "little"))
                command, environment, folder = json.loads(body)
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _run(command, environment, folder, fds[1:])
                running[pid] = socket.socket(fileno=fds[0])
                with suppress(OSError):
                    running[pid].sendall(str(pid).encode().ljust(_WIDTH))
                for fd in fds[1:]:
                    os.close(fd)


def _answer_ended(running: dict[int, socket.socket]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with running.pop(pid) as asker, suppress(OSError):
                asker.sendall(str(os.waitstatus_to_exitcode(status)).encode().ljust(_WIDTH))


def _run(
    command: list[str], environment: dict[str, str], folder: str, descriptors: Sequence[int]
) -> NoReturn:
    """Be a module with its words, as `python -m` would be; they have stdout, stderr and more."""
    code = 1
    try:
        kept = [fcntl.fcntl(each, fcntl.F_DUPFD, 200) for each in descriptors]
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
        os.closerange(len(kept) + 1, 256)
        os.environ.clear()
        os.environ.update(environment)
        _show_mark(environment.get(MARK, ""))
        os.chdir(folder)
        if command[0] == FORK_SERVER:
            os.setsid()
        else:
            sys.path.insert(0, folder)  # as `python -m` has it
        sys.argv = list(command)
        # It says that the module is loaded already, which it is not as __main__.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _show_mark(mark: str) -> None:
    """Write the mark where others see the environment of this process and of those it forks.

    What is seen there is the memory in which the warm process got its environment.
    """
    if not mark:
        return
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end: man 5 proc_pid_stat
    seen = (ctypes.c_char * (end - start)).from_address(start)
    at = seen.raw.index(f"{MARK}={NO_MARK}".encode()) + len(MARK) + 1
    seen[at : at + len(NO_MARK)] = mark.encode().ljust(len(NO_MARK), b"\0")  # it is the last


def _receive(control: socket.socket, size: int) -> bytes:
    body = bytearray()
    while len(body) < size:
        body += control.recv(size - len(body))
    return bytes(body)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
