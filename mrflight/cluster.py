"""The servers of a job: started for it and ended with it, or found running."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.fork_server import ForkServer
from mrflight.lifeline import Lifeline

START_TIMEOUT_S = 60.0
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

    def __init__(
        self,
        folder: PrivateFolder,
        fork_server: ForkServer,
        data_servers: int,
        memory_bytes: int,
        spill_dir: Path,
    ) -> None:
        """``memory_bytes`` is what all data servers hold together before they spill."""
        self._folder = folder
        self._fork_server = fork_server
        self._servers: list[_ServerProcess] = []
        self.metadata = f"grpc+unix://{folder.path}/metadata.sock"
        self._start("metadata", "metadata")
        for number in range(data_servers):
            self._start(
                "data",
                f"data{number}",
                *("--metadata", self.metadata),
                *("--memory", str(memory_bytes // data_servers)),
                *("--spill-dir", str(spill_dir)),
            )

    def wait(self) -> None:
        """Return once every server is ready; JobFailedError with its log for one that is not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for server in self._servers:
            server.wait_ready(deadline)

    def close(self) -> None:
        """End all servers, whatever they do: the job is over, and what they hold was for it.

        Does not wait for their ends, as closing the fork server does.
        """
        for server in self._servers:
            server.close()

    def _start(self, module: str, name: str, *options: str) -> None:
        arguments = [
            *("--socket", str(self._folder.path / f"{name}.sock")),
            *("--lifeline", str(self._folder.lifeline.path)),
            *options,
        ]
        log_path = self._folder.path / f"{name}.log"
        self._servers.append(_ServerProcess(self._fork_server, module, name, arguments, log_path))


class _ServerProcess:
    """One server, its log in a file, its ready line awaited."""

    def __init__(
        self,
        fork_server: ForkServer,
        module: str,
        name: str,
        arguments: list[str],
        log_path: Path,
    ) -> None:
        self.name = name
        self._log_path = log_path
        self._ready, stdout = os.pipe()
        with log_path.open("wb") as log_file:
            self._process = fork_server.start(
                f"mrflight-{name}",
                f"mrflight.servers.{module}:main",
                arguments,
                stdout=stdout,
                stderr=log_file.fileno(),
            )
        os.close(stdout)

    def wait_ready(self, deadline: float) -> None:
        if not _read_line(self._ready, deadline):
            code = self._process.wait(0)
            if code is None:
                raise DeadlineExceededError(
                    f"the {self.name} server was not ready after {START_TIMEOUT_S:.0f} s; its log: "
                    f"{self._log_tail()}"
                )
            raise JobFailedError(
                f"the {self.name} server ended with code {code} before it was ready: "
                f"{self._log_tail()}"
            )

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.close()
        os.close(self._ready)

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._log_path.read_text(errors="replace")[-2000:].strip() or "(empty)"
        return "(gone)"


def _read_line(stream: int, deadline: float) -> bytes:
    """A line of a pipe, or nothing where it ends or the deadline passes."""
    line = b""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    while not line.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return b""
        read = os.read(stream, 4096)
        if not read:
            return b""
        line += read
    return line
