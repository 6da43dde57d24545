"""The driver's side of a child of the fork server, which reports over a pipe."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from mrflight.errors import JobFailedError
from mrflight.system.closeable import Closeable
from mrflight.system.process_info import has_ended

log = logging.getLogger(__name__)

NUMBER_BYTES = 8
_START_TIMEOUT_S = 60.0

_LAST_WAIT_S = 0.5
"""For a fork that is under way when the job is over. It takes some milliseconds."""

_POLL_INTERVAL_S = 0.1
"""How often a wait checks whether it may go on."""

_END_TIMEOUT_S = 1.0
_END_POLL_INTERVAL_S = 0.002
"""How often to check whether a killed orphan is gone."""


class Streams(NamedTuple):
    """The descriptors that become the stdout and stderr of a child."""

    stdout: int = 2  # stdout of the driver is for its result
    stderr: int = 2


class WaitLimit:
    """Bounds how long an owner of children waits for the fork server, once it has expired."""

    def __init__(self) -> None:
        self.until = math.inf

    def expire(self) -> None:
        """Shorten all waits for forks and for children's ends, those under way and later ones.

        It is called before the threads that may wait are joined, because a fork server that is
        stopped or hangs does not answer them.
        """
        self.until = min(self.until, time.monotonic() + _LAST_WAIT_S)


class ForkedProcess(Closeable):
    """A child of the fork server. Its `fileno` becomes readable when it has ended.

    It may be used by several threads, but none may wait for it when it is closed.
    """

    def __init__(
        self, name: str, status: int, limit: WaitLimit, orphaned: Callable[[], None]
    ) -> None:
        """``orphaned`` is called if the fork server has ended before the child."""
        self.name = name
        self._status = status
        self._limit = limit
        self._orphaned = orphaned
        self._reading = threading.Lock()
        self._pid: int | None = None
        self._exit_code: int | None = None

    @property
    def pid(self) -> int:
        """The process id; waits for the fork, and raises JobFailedError if there was none."""
        if not self.is_forked():
            raise JobFailedError(f"{self.name} was not started: the fork server has ended")
        assert self._pid is not None
        return self._pid

    def is_forked(self) -> bool:
        """Wait for the fork; return False if the fork server ended before it.

        Raises JobFailedError if neither happens in time.
        """
        with self._reading:  # otherwise one thread would wait for what another has read
            self._learn_pid(_START_TIMEOUT_S)
            if self._pid is None and self._exit_code is None:
                raise JobFailedError(f"{self.name} was not started: the fork server hangs")
            return self._pid is not None

    def living_pid(self) -> int | None:
        """Return the process id if the child is known to live; does not wait."""
        if not self._reading.acquire(blocking=False):
            return self._pid  # another thread is reading, or waits for the fork
        try:
            if self._status < 0:
                return None
            self._learn_pid(0)
            return None if self._pid is None or self._is_readable(0) else self._pid
        finally:
            self._reading.release()

    def has_ended(self) -> bool:
        """Return whether the child is known to have ended; does not wait."""
        return self.living_pid() is None and (self._pid, self._exit_code) != (None, None)

    def fileno(self) -> int:
        self.is_forked()  # the process id comes first
        return self._status

    def wait(self, timeout_s: float) -> int | None:
        """Return how it ended, like `subprocess.Popen.returncode`; None while it runs.

        A child whose fork server has ended is killed here. One that was never forked counts as
        killed.
        """
        if self.is_forked() and self._exit_code is None and self._is_readable(timeout_s):
            with self._reading:
                if self._exit_code is None:
                    self._exit_code = self._read()
                if self._exit_code is None and self._pid is not None:
                    self._kill(self._pid)
                    self._mark_orphaned()
        return self._exit_code

    def send_signal(self, number: int) -> None:
        """Signal the child, unless it has ended."""
        if self.wait(0) is None:  # then the id is still that of the child
            kill(self.pid, number)

    def close(self) -> None:
        """Stop listening to the child, whether it has ended or not."""
        with self._reading:
            if self._status >= 0:
                os.close(self._status)
                self._status = -1

    def _learn_pid(self, timeout_s: float) -> None:
        """Read the process id if it is there; the lock is held."""
        if self._pid is None and self._exit_code is None and self._is_readable(timeout_s):
            self._pid = self._read()
            if self._pid is None:
                self._mark_orphaned()

    def _kill(self, pid: int) -> None:
        """Kill the process, which is not a child of this one, and wait a moment for its end."""
        kill(pid)
        until = time.monotonic() + _END_TIMEOUT_S
        while not has_ended(pid):  # it holds its locks until then
            if time.monotonic() >= until:
                log.warning(
                    "%s (process %d) was killed because its fork server has ended, and is not gone "
                    "after %g s; its files may be in use until then",
                    self.name,
                    pid,
                    _END_TIMEOUT_S,
                )
                return
            time.sleep(_END_POLL_INTERVAL_S)

    def _mark_orphaned(self) -> None:
        self._exit_code = -signal.SIGKILL
        self._orphaned()

    def _is_readable(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while True:
            left_s = max(0.0, min(until, self._limit.until) - time.monotonic())
            if poll.poll(min(left_s, _POLL_INTERVAL_S) * 1000):
                return True
            if not left_s:
                return False

    def _read(self) -> int | None:
        """Read the next number; None if the fork server has ended."""
        data = os.read(self._status, NUMBER_BYTES)  # it is written in one piece
        return int.from_bytes(data, "little", signed=True) if data else None


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, unless it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
