"""A child of the fork server, as the driver knows it: by a pipe that tells how it goes."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable

from mrflight.errors import JobFailedError
from mrflight.system.closeable import Closeable
from mrflight.system.process_info import has_ended

log = logging.getLogger(__name__)

NUMBER_BYTES = 8
_START_TIMEOUT_S = 60.0

_LAST_WAIT_S = 0.5
"""For a fork that is under way when the job is over. It takes some ms."""

_LOOK_EVERY_S = 0.1
"""Whether to wait on."""

_END_TIMEOUT_S = 1.0
_LOOK_AT_THE_END_EVERY_S = 0.002
"""Of an orphan that was killed."""


class Waits:
    """Those for the fork server of somebody who started children, until `end`."""

    def __init__(self) -> None:
        self.until = math.inf

    def end(self) -> None:
        """Let nobody wait much longer, nor much from now on, for a fork or for a child's end.

        For who closes, and joins the threads that may wait: a fork server that is stopped, or
        hangs, answers none of them.
        """
        self.until = min(self.until, time.monotonic() + _LAST_WAIT_S)


class ForkedProcess(Closeable):
    """A child of the fork server. Its `fileno` becomes readable when it has ended.

    Safe for several threads; none may wait for it when it is closed.
    """

    def __init__(self, name: str, status: int, waits: Waits, orphaned: Callable[[], None]) -> None:
        """``orphaned`` is called when the fork server turns out to have ended before it."""
        self.name = name
        self._status = status
        self._waits = waits
        self._orphaned = orphaned
        self._reading = threading.Lock()
        self._pid: int | None = None
        self._exit_code: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; waits for the fork. JobFailedError where there was none."""
        if not self.is_forked():
            raise JobFailedError(f"{self.name} was not started: the fork server has ended")
        assert self._pid is not None
        return self._pid

    def is_forked(self) -> bool:
        """Whether it was, or its fork server ended before; waits for that.

        JobFailedError where neither happens.
        """
        with self._reading:  # or who reads it first leaves the other one waiting
            self._learn_pid(_START_TIMEOUT_S)
            if self._pid is None and self._exit_code is None:
                raise JobFailedError(f"{self.name} was not started: the fork server hangs")
            return self._pid is not None

    def living_pid(self) -> int | None:
        """Its process id while it is known to live; does not wait."""
        if not self._reading.acquire(blocking=False):
            return self._pid  # another thread reads, or waits for the fork
        try:
            if self._status < 0:
                return None
            self._learn_pid(0)
            return None if self._pid is None or self._is_readable(0) else self._pid
        finally:
            self._reading.release()

    def has_ended(self) -> bool:
        """Whether it is known to have ended; does not wait."""
        return self.living_pid() is None and (self._pid, self._exit_code) != (None, None)

    def fileno(self) -> int:
        self.is_forked()  # which is told first
        return self._status

    def wait(self, timeout_s: float) -> int | None:
        """How it ended, as `subprocess.Popen.returncode` has it; None while it runs.

        A child whose fork server has ended is ended here; one that it has not forked counts as
        killed.
        """
        if self.is_forked() and self._exit_code is None and self._is_readable(timeout_s):
            with self._reading:
                if self._exit_code is None:
                    self._exit_code = self._read()
                if self._exit_code is None and self._pid is not None:
                    self._end(self._pid)
                    self._be_orphaned()
        return self._exit_code

    def send_signal(self, number: int) -> None:
        """Signal the child, unless it has ended."""
        if self.wait(0) is None:  # so that the id is still its own
            kill(self.pid, number)

    def close(self) -> None:
        """Let go of it, whether it has ended or not."""
        with self._reading:
            if self._status >= 0:
                os.close(self._status)
                self._status = -1

    def _learn_pid(self, timeout_s: float) -> None:
        """Read it, once it can be; the lock is held."""
        if self._pid is None and self._exit_code is None and self._is_readable(timeout_s):
            self._pid = self._read()
            if self._pid is None:
                self._be_orphaned()

    def _end(self, pid: int) -> None:
        """Kill the process, which is no child of this one, and wait a moment for its end."""
        kill(pid)
        until = time.monotonic() + _END_TIMEOUT_S
        while not has_ended(pid):  # until then it holds its locks
            if time.monotonic() >= until:
                log.warning(
                    "%s (process %d) was killed, as its fork server has ended, and is not gone "
                    "after %g s; its files may be in use until it is",
                    self.name,
                    pid,
                    _END_TIMEOUT_S,
                )
                return
            time.sleep(_LOOK_AT_THE_END_EVERY_S)

    def _be_orphaned(self) -> None:
        self._exit_code = -signal.SIGKILL
        self._orphaned()

    def _is_readable(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while True:
            left_s = max(0.0, min(until, self._waits.until) - time.monotonic())
            if poll.poll(min(left_s, _LOOK_EVERY_S) * 1000):
                return True
            if not left_s:
                return False

    def _read(self) -> int | None:
        """The next number; None where the fork server ended."""
        data = os.read(self._status, NUMBER_BYTES)  # written in one piece
        return int.from_bytes(data, "little", signed=True) if data else None


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process; nothing happens where it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
