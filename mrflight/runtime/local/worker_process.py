"""A worker as a process of this machine, forked from a fork server that has loaded Arrow."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from mrflight.errors import JobFailedError, WorkerLostError
from mrflight.events.task_report import TaskReport, attach_report
from mrflight.runtime.local.worker_output import WorkerOutput
from mrflight.system.fork_server.child import Streams, WaitLimit
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.process_info import StoppedTimer, oom_kills, signal_name

_END_TIMEOUT_S = 5.0
"""How long it takes at most until the end of a worker is known, after its channel has closed."""

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}


class WorkerProcess:
    """A worker process, or its replacement."""

    def __init__(
        self,
        name: str,
        fork_server: ForkServer,
        parent_lock: Path,
        wait_limit: WaitLimit,
        output: WorkerOutput | None,
    ) -> None:
        self.name = name
        self._fork_server = fork_server
        self._parent_lock = parent_lock
        self._wait_limit = wait_limit
        self._output = output
        self._starting = threading.Lock()
        self._is_closed = False
        self._is_killed = False
        self._start()

    def ensure_alive(self) -> None:
        """Start another process if the last one has ended, or was killed."""
        if self._is_killed or self._process.wait(0) is not None:
            self._restart()

    def run(self, call: bytes) -> bytes:
        """Return the answer to a call; raises WorkerLostError if the process ends before."""
        before = oom_kills()
        try:
            self._channel.send_bytes(call)
            # A child of a dead worker may keep its channel open, and an answer may be incomplete.
            wait([self._channel, self._process.fileno()])
            if self._channel.poll():
                return self._channel.recv_bytes()
        except (OSError, EOFError):
            pass  # it is dead, or about to be
        lost = WorkerLostError(
            f"a worker process ended in the middle of a task: {self._describe_end(before)}"
        )
        attach_report(lost, TaskReport(self.name))
        raise lost

    def check_stopped(self, timeout_s: float) -> None:
        """Kill the process if it has been stopped for so long. Does not wait."""
        if not self._starting.acquire(blocking=False):
            return  # it is being started or killed
        try:
            if self._stopped.reached(self._process.living_pid(), timeout_s):
                self._was_stopped_s = self._stopped.seconds()
                self._kill()
            elif self._process.has_ended():
                self._shut_down_channel()
        finally:
            self._starting.release()

    def close(self) -> None:
        """Kill the process for good."""
        with self._starting:
            self._is_closed = True
        self.kill()

    def kill(self) -> None:
        """Kill the process; the next call runs in another one."""
        with self._starting, suppress(JobFailedError):  # it was never started
            self._kill()

    def _kill(self) -> None:
        self._is_killed = True  # this is known before the process has ended
        try:
            self._process.send_signal(signal.SIGKILL)
        finally:
            self._shut_down_channel()

    def _shut_down_channel(self) -> None:
        """End reads and writes of the channel, which a child of a dead worker may keep open."""
        with socket.socket(fileno=os.dup(self._channel.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, self._streams() as streams:
            self._process = self._fork_server.start(
                f"mrflight-{self.name}",
                "mrflight.runtime.worker:work",
                [str(self._parent_lock), self.name],
                [theirs.fileno()],
                streams,
                self._wait_limit,
            )
        self._channel = Connection(ours.detach())
        self._stopped = StoppedTimer()
        self._is_killed, self._was_stopped_s = False, 0.0

    @contextmanager
    def _streams(self) -> Iterator[Streams]:
        """Give the descriptors that a process gets as its stdout and stderr."""
        if self._output is None:
            yield Streams()
            return
        pipe = self._output.open()
        try:
            yield Streams(pipe, pipe)
        finally:
            os.close(pipe)

    def _restart(self) -> None:
        with self._starting:
            if self._is_closed:
                raise WorkerLostError("the workers are being ended")
            process, channel = self._process, self._channel
            self._start()
            process.close()
            channel.close()

    def _describe_end(self, oom_kills_before: int | None) -> str:
        code = self._process.wait(_END_TIMEOUT_S)
        if self._was_stopped_s:
            return (
                f"it had been stopped, by SIGSTOP, for {self._was_stopped_s:.0f} s, and was killed"
            )
        if code is None:
            self.kill()
            return "it closed its channel to the driver"
        if code == -signal.SIGKILL and (kills := oom_kills()) is not None:
            if kills != oom_kills_before:
                return (
                    "the system killed it, or another process at the same time, because memory ran "
                    "out; give the job a smaller cluster.memory or fewer cluster.workers"
                )
            return "it was killed from outside"
        if code == -signal.SIGKILL:
            return "it was killed from outside, or by the system because memory ran out"
        if code < 0 and -code not in _CRASHES:
            return f"it was ended by {signal_name(-code)}"
        if code < 0:
            return f"it crashed in native code, by {signal_name(-code)}"
        return f"it exited with code {code}"
