"""The servers of a job: started for it and ended with it, or found running."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.lifeline import Lifeline

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
_SOCKET_PATH = re.compile(r"[A-Za-z0-9/._~-]+")  # what a location takes as it is
_LONGEST_SOCKET_PATH = 100  # bytes; the kernel's limit is 107


class PrivateFolder:
    """A job's own temporary folder (mode 0700): sockets, logs of servers, the lifeline."""

    def __init__(self) -> None:
        path = Path(tempfile.mkdtemp(prefix="mrflight-"))
        too_long = len(os.fsencode(path)) > _LONGEST_SOCKET_PATH - len("/metadata.sock")
        if too_long or not _SOCKET_PATH.fullmatch(str(path)):
            path.rmdir()  # a unix socket's path is short and plain, whatever TMPDIR says
            path = Path(tempfile.mkdtemp(prefix="mrflight-", dir="/tmp"))
        self.path = path
        self.lifeline = Lifeline(path / "lifeline")

    def close(self) -> None:
        """Remove the folder; processes that still hold on to the lifeline end."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.lifeline.close()


class EmbeddedCluster:
    """A metadata server and data servers on unix sockets in a private folder.

    They start side by side in the constructor, which does not wait: `wait`
    does. They end with `close`, or with this process, however it ends.
    """

    def __init__(self, folder: PrivateFolder, data_servers: int) -> None:
        self._folder = folder
        self._servers: list[_ServerProcess] = []
        self.metadata = f"grpc+unix://{folder.path}/metadata.sock"
        self._start("metadata", "metadata")
        for number in range(data_servers):
            self._start("data", f"data{number}", "--metadata", self.metadata)

    def wait(self) -> None:
        """Return once every server is ready; JobFailedError with its log for one that is not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for server in self._servers:
            server.wait_ready(deadline)

    def close(self) -> None:
        """End all servers: politely at first, by force after five seconds."""
        for server in self._servers:
            server.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for server in self._servers:
            server.wait_ended(deadline)

    def _start(self, module: str, name: str, *options: str) -> None:
        command = [
            *(sys.executable, "-P", "-m", f"mrflight.servers.{module}"),
            *("--socket", str(self._folder.path / f"{name}.sock")),
            *("--lifeline", str(self._folder.lifeline.path)),
            *options,
        ]
        self._servers.append(_ServerProcess(name, command, self._folder.path / f"{name}.log"))


class _ServerProcess:
    """One server, its log in a file, its ready line awaited."""

    def __init__(self, name: str, command: list[str], log_path: Path) -> None:
        self.name = name
        self._log_path = log_path
        with log_path.open("wb") as log_file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
                start_new_session=True,  # Ctrl-C is for the driver, which ends the servers
            )

    def wait_ready(self, deadline: float) -> None:
        if not _read_line(self._process.stdout, deadline):
            if self._process.poll() is None:
                raise DeadlineExceededError(
                    f"the {self.name} server was not ready after {START_TIMEOUT_S:.0f} s; its log: "
                    f"{self._log_tail()}"
                )
            raise JobFailedError(
                f"the {self.name} server ended with code {self._process.wait()} before it was "
                f"ready: {self._log_tail()}"
            )

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait_ended(self, deadline: float) -> None:
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("the %s server does not stop; killing it", self.name)
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._log_path.read_text(errors="replace")[-2000:].strip() or "(empty)"
        return "(gone)"


def _read_line(stream: IO[bytes] | None, deadline: float) -> bytes:
    """A line of a pipe, or nothing where it ends or the deadline passes."""
    import selectors

    assert stream is not None
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return b""
            read = os.read(stream.fileno(), 4096)
            if not read:
                return b""
            line += read
    return line
