"""A server process of a job's own cluster: its log in a file, its ready line in a pipe."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from mrflight.errors import DeadlineExceededError, JobFailedError
from mrflight.system.fork_server.child import Waits
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.process_info import signal_name

START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
"""Of a server that was killed, until its end is known."""
_LONGEST_LINE = 300


class ServerProcess:
    """A server, started at once; its ``kind`` names its module of `mrflight.servers`.

    Its `fileno` becomes readable when it has ended.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        kind: str,
        name: str,
        socket: Path,
        arguments: Sequence[str],
        log_path: Path,
        waits: Waits | None = None,
    ) -> None:
        """It listens on ``socket``, which one that is gone may have left.

        ``waits`` are those for the fork server, which starts it and tells how it ended.
        """
        self.kind = kind
        self.name = name
        self.location = f"grpc+unix://{socket}"
        socket.unlink(missing_ok=True)
        self._log_path = log_path
        self._started = time.monotonic()
        self._is_ready = False
        self._seen_living: float | None = None
        self._reading = threading.Lock()
        self._ready, stdout = os.pipe()
        try:
            with log_path.open("wb") as log_file:
                self._process = fork_server.start(
                    f"mrflight-{name}",
                    f"mrflight.servers.{kind}:main",
                    ["--socket", str(socket), *arguments],
                    stdout=stdout,
                    stderr=log_file.fileno(),
                    waits=waits,
                )
        except BaseException:
            os.close(self._ready)
            raise
        finally:
            os.close(stdout)

    def is_started(self) -> bool:
        """Whether it was, or its fork server ended before; waits for that."""
        return self._process.is_forked()

    def fileno(self) -> int:
        return self._process.fileno()

    def wait_ready(self, deadline: float) -> None:
        """Return once it is ready; JobFailedError with its log where it ends or is too slow."""
        with self._reading:
            self._is_ready = self._is_ready or bool(_read_line(self._ready, deadline))
        if not self._is_ready:
            # What it says ends a moment before it has.
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
        """Whether it is not ready so long after it was first asked here. Does not wait.

        One that has ended is not late, nor is one that somebody waits for.
        """
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
        """End it, whatever it does; does not wait for its end."""
        with contextlib.suppress(JobFailedError):  # it was never started
            self._process.send_signal(signal.SIGKILL)

    def was_killed(self) -> bool:
        """Whether a signal ended it."""
        code = self._process.wait(0)
        return code is not None and code < 0

    def how_it_ended(self) -> str:
        """What comes after "the server", once it has ended or was killed."""
        code = self._process.wait(_END_TIMEOUT_S)
        if code is None:
            return "runs"
        if code < 0:
            return f"was killed by {signal_name(-code)}"
        return f"ended with code {code}"

    def last_log_line(self) -> str:
        """The last thing that it said, perhaps why it ended."""
        return self._log_tail().splitlines()[-1][:_LONGEST_LINE]

    def close(self) -> None:
        """End it as `kill` does, and let go of it."""
        self.kill()
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
