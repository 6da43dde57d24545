"""A server of an embedded cluster as a local process, with its log in a file."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.system.fork_server.child import Streams, WaitLimit
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.log_output import message_of
from mrflight.system.process_info import signal_name

START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
"""How long it takes at most until the end of a killed server is known."""
_MAX_LINE = 300


class ServerCommand(NamedTuple):
    """What to start as a server."""

    kind: str
    """Names its module of `mrflight.servers`."""
    name: str
    socket: Path
    """Where it listens. A server that is gone may have left the file."""
    arguments: Sequence[str]
    log_path: Path


class ServerProcess:
    """A server process, started at once: see `mrflight.runtime.supervised_cluster.Server`."""

    def __init__(
        self, fork_server: ForkServer, command: ServerCommand, wait_limit: WaitLimit | None = None
    ) -> None:
        """``wait_limit`` bounds the waits for the fork server."""
        self.kind = command.kind
        self.name = command.name
        self.location = f"grpc+unix://{command.socket}"
        command.socket.unlink(missing_ok=True)
        self._log_path = command.log_path
        self._started = time.monotonic()
        self._is_ready = False
        self._seen_living: float | None = None
        self._reading = threading.Lock()
        self._ready, stdout = os.pipe()
        try:
            with command.log_path.open("wb") as log_file:
                self._process = fork_server.start(
                    f"mrflight-{command.name}",
                    f"mrflight.servers.{command.kind}:main",
                    ["--socket", str(command.socket), *command.arguments],
                    streams=Streams(stdout, log_file.fileno()),
                    wait_limit=wait_limit,
                )
        except BaseException:
            os.close(self._ready)
            raise
        finally:
            os.close(stdout)

    def is_started(self) -> bool:
        """Wait for the fork; return False if the fork server ended before it."""
        return self._process.is_forked()

    def fileno(self) -> int:
        return self._process.fileno()

    def wait_ready(self, deadline: float) -> None:
        """Return once it is ready; raises JobFailedError with its log if it ends or is too slow."""
        with self._reading:
            self._is_ready = self._is_ready or bool(_read_line(self._ready, deadline))
        if not self._is_ready:
            # Its stdout closes a moment before it has ended.
            code = self._process.wait(max(0.0, deadline - time.monotonic()))
            if code is None:
                raise DeadlineExceededError(
                    f"the {self.name} server was not ready after "
                    f"{time.monotonic() - self._started:.0f} s; its log: {self._log_tail()}"
                )
            raise JobFailedError(
                f"the {self.name} server ended with code {code} before it was ready: "
                f"{self._log_tail()}"
            )

    def is_late(self, after_s: float) -> bool:
        """See `Server.is_late`; a server that has ended, or that a thread waits for, is not."""
        now = time.monotonic()
        if self._process.living_pid() is None or not self._reading.acquire(blocking=False):
            return False
        try:
            self._seen_living = self._seen_living or now
            self._is_ready = self._is_ready or bool(_read_line(self._ready, now))
            return not self._is_ready and now - self._seen_living >= after_s
        finally:
            self._reading.release()

    def kill(self) -> None:
        with contextlib.suppress(JobFailedError):  # it was never started
            self._process.send_signal(signal.SIGKILL)

    def was_killed(self) -> bool:
        code = self._process.wait(0)
        return code is not None and code < 0

    def describe_end(self) -> str:
        code = self._process.wait(_END_TIMEOUT_S)
        if code is None:
            return "runs"
        if code < 0:
            return f"was killed by {signal_name(-code)}"
        return f"ended with code {code}"

    def last_log_line(self) -> str:
        return message_of(self._log_tail().splitlines()[-1])[:_MAX_LINE]

    def close(self) -> None:
        self.kill()
        self._process.close()
        os.close(self._ready)

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._log_path.read_text(errors="replace")[-2000:].strip() or "(empty)"
        return "(gone)"


def _read_line(stream: int, deadline: float) -> bytes:
    """Read a line of a pipe; return nothing if the pipe ends or the deadline passes."""
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
