"""Commands, servers and fork servers, forked from a process that has imported what they import.

Half of the processor time of a small job goes into imports, and hundreds of tests run one. So a
worker of pytest keeps one warm process (`tests.support.commands.warm_process`), and forks from it
what a test starts: the module itself, such as `mrflight.driver`, is run again in the child, as
`python -m` does it, and its streams, environment and current folder are those that the test asks
for. Tests of the start itself, and of signals that come while it imports, run a real command.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from tests.support.commands import warm_process
from tests.support.commands.warm_process import FORK_SERVER, MARK, NO_MARK, WIDTH

_PASSED = 3
"""The descriptor that a fork server is controlled by."""

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""As a driver and a fork server have it before they load NumPy."""

SET_BY_IMPORTS = {"GRPC_VERBOSITY", "RAY_CLIENT_MODE", "_RJEM_MALLOC_CONF", *ONE_THREAD}
"""Variables that our modules, Ray's and Polars' set to their own default as they are imported."""

RAY_TOKEN = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
"""Set while a Ray runs that tests share, and read by the gateway to Ray, a process of its own."""

READ_LATER = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM"}
"""Variables of terminals, which are read where something is printed."""

OF_TESTS = {"TMPDIR", "PYTEST_CURRENT_TEST", "MRFLIGHT_DUCKLAKE_PYTHON"}
"""Variables that tests set, and that are read where something is made or started."""

MAY_DIFFER = {*OF_TESTS, *RAY_TOKEN, *SET_BY_IMPORTS, *READ_LATER} | (
    {MARK} if sys.platform == "linux" else set()
)
"""Variables that nothing looks at as it is imported."""


class ForkedDriver:
    """A process that runs, as `subprocess.Popen` has it; the warm process tells how it ended."""

    def __init__(self, warm: socket.socket) -> None:
        self._warm = warm
        self._asking = threading.Lock()
        self.pid = int(warm.recv(WIDTH))
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
                answer = self._warm.recv(WIDTH)
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
                [sys.executable, "-P", warm_process.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**self._environment, MARK: NO_MARK},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

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

    def start_command(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        folder: Path,
        loads: Sequence[str],
    ) -> ForkedDriver:
        """Begin to run a module and its words in a folder, with stdin, stdout and stderr.

        The warm process loads the modules of ``loads`` first, if it has not before.
        """
        stdin, *others = streams
        return ForkedDriver(
            self._fork(command, environment, *others, stdin=stdin, folder=folder, loads=loads)
        )

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
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *descriptors: int,
        stdin: int | None = None,
        folder: Path | None = None,
        loads: Sequence[str] = (),
    ) -> socket.socket:
        """Return the channel on which the warm process tells of the one that it forked.

        ``descriptors`` become those from 1 on. Without ``stdin`` there is nothing to read.
        """
        ours, theirs = socket.socketpair()
        with theirs, open(os.devnull) as nothing:
            request = [list(command), dict(environment), str(folder or os.getcwd()), list(loads)]
            first = nothing.fileno() if stdin is None else stdin
            self._send(request, [theirs.fileno(), first, *descriptors])
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
