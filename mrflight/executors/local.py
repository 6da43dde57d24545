"""Workers as processes of this machine, forked from a fork server that has loaded Arrow.

A worker makes one call at a time. One that dies costs the call that it was
making, and is started anew for the next.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrflight.closing import Closes
from mrflight.errors import JobFailedError, WorkerLostError
from mrflight.executors.calls import decode_answer, encode_call
from mrflight.fork_server import ForkServer
from mrflight.oom_kills import oom_kills
from mrflight.stopped_process import is_stopped

P = ParamSpec("P")
R = TypeVar("R")

_LOOK_EVERY_S = 0.5
"""For workers that stand still."""

_END_TIMEOUT_S = 5.0
"""Of a worker whose channel has closed, until its end is known."""


class _Call(NamedTuple):
    encoded: bytes
    future: Future[Any]


class LocalExecutor(Closes):
    """``workers`` processes, started at once; they end with the driver through ``lifeline``.

    One that somebody has stopped, and that is not let go on for ``stopped_timeout_s``, is ended.
    """

    def __init__(
        self,
        workers: int,
        fork_server: ForkServer,
        lifeline: Path,
        stopped_timeout_s: float = 10.0,
    ) -> None:
        self.workers = workers
        self._stopped_timeout_s = stopped_timeout_s
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closing = threading.Event()
        self._running: dict[Future[Any], _Worker] = {}
        self._changing = threading.Lock()  # of `_running`, whose workers may be killed meanwhile
        self._workers = [
            _Worker(f"worker{number}", fork_server, [str(lifeline)]) for number in range(workers)
        ]
        self._feeders = [
            threading.Thread(target=self._feed, args=[worker], name=worker.name, daemon=True)
            for worker in self._workers
        ]
        self._watch = threading.Thread(target=self._end_stopped, name="stopped", daemon=True)
        for thread in (*self._feeders, self._watch):
            thread.start()

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if self._closing.is_set():
            raise WorkerLostError("the workers have been ended; nothing more can be run on them")
        future: Future[R] = Future()
        self._calls.put(_Call(encode_call(function, args, kwargs), future))
        return future

    def stop(self, future: Future[R]) -> None:
        if future.cancel():
            return
        with self._changing:  # a worker that is found does not go on to another call
            if (worker := self._running.get(future)) is not None:
                worker.kill()

    def close(self) -> None:
        self._closing.set()
        for worker in self._workers:
            worker.close()
        for _ in self._feeders:
            self._calls.put(None)
        for thread in (*self._feeders, self._watch):
            thread.join()

    def _feed(self, worker: _Worker) -> None:
        """Give one worker call after call."""
        while (call := self._calls.get()) is not None:
            if self._closing.is_set():
                call.future.cancel()
                continue
            with self._changing:  # a call that runs is one that can be stopped
                if not call.future.set_running_or_notify_cancel():
                    continue
                self._running[call.future] = worker
            try:
                answer = decode_answer(worker.make(call.encoded))
            except BaseException as error:  # whoever asked for the call decides
                self._end(call)
                call.future.set_exception(error)
            else:
                self._end(call)
                call.future.set_result(answer)
        worker.close()

    def _end_stopped(self) -> None:
        """End workers that stand still: a job's only task would wait for one for ever."""
        while not self._closing.wait(_LOOK_EVERY_S):
            for worker in self._workers:
                worker.end_if_stopped(self._stopped_timeout_s)

    def _end(self, call: _Call) -> None:
        with self._changing:
            del self._running[call.future]


class _Worker:
    """A worker process, or the next one in its place."""

    def __init__(self, name: str, fork_server: ForkServer, arguments: list[str]) -> None:
        self.name = name
        self._fork_server = fork_server
        self._arguments = arguments
        self._starting = threading.Lock()
        self._is_closed = False
        self._is_killed = False
        self._stopped_since_s: float | None = None
        self._was_stopped_s = 0.0
        self._start()

    def make(self, call: bytes) -> bytes:
        """The answer to a call; WorkerLostError where the process ended before it came."""
        if self._is_killed or self._process.wait(0) is not None:
            self._restart()
        before = oom_kills()
        try:
            self._channel.send_bytes(call)
            wait(
                [self._channel, self._process.fileno()]
            )  # a child of a dead worker may hold its channel
            if self._channel.poll():
                return self._channel.recv_bytes()
        except (OSError, EOFError):
            pass  # it is dead, or about to be
        raise WorkerLostError(
            f"a worker process ended in the middle of a task: {self._how_it_ended(before)}"
        )

    def end_if_stopped(self, timeout_s: float) -> None:
        """End the process where it has been stopped for so long."""
        with self._starting, suppress(JobFailedError):  # it was never started
            if self._process.wait(0) is not None or not is_stopped(self._process.pid):
                self._stopped_since_s = None
                return
            self._stopped_since_s = self._stopped_since_s or time.monotonic()
            stopped_s = time.monotonic() - self._stopped_since_s
            if stopped_s >= timeout_s:
                self._was_stopped_s = stopped_s
                self._kill()

    def close(self) -> None:
        """End the process, whatever it does, for good."""
        with self._starting:
            self._is_closed = True
        self.kill()

    def kill(self) -> None:
        """End the process, whatever it does; the next call is made by another one."""
        with self._starting, suppress(JobFailedError):  # it was never started
            self._kill()

    def _kill(self) -> None:
        self._is_killed = True  # known before the process has ended
        self._process.send_signal(signal.SIGKILL)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._fork_server.start(
                f"mrflight-{self.name}",
                "mrflight.executors.worker:work",
                self._arguments,
                [theirs.fileno()],
            )
        self._channel = Connection(ours.detach())
        self._is_killed, self._stopped_since_s, self._was_stopped_s = False, None, 0.0

    def _restart(self) -> None:
        with self._starting:
            if self._is_closed:
                raise WorkerLostError("the workers are being ended")
            self._process.close()
            self._channel.close()
            self._start()

    def _how_it_ended(self, oom_kills_before: int | None) -> str:
        code = self._process.wait(_END_TIMEOUT_S)
        if self._was_stopped_s:
            return (
                f"it had been stopped, by SIGSTOP, for {self._was_stopped_s:.0f} s, and was ended"
            )
        if code is None:
            self._process.send_signal(signal.SIGKILL)
            return "it closed its channel to the driver"
        if code == -signal.SIGKILL and (kills := oom_kills()) is not None:
            if kills != oom_kills_before:
                return (
                    "the system killed it, or another process at the same time, because memory ran "
                    "out; give the job a smaller cluster.memory or fewer cluster.workers"
                )
            return "it was killed from outside"
        if code == -signal.SIGKILL:
            return "it was killed from outside, or by the system for the memory that it took"
        if code < 0:
            return f"it crashed in native code, by {signal.Signals(-code).name}"
        return f"it exited with code {code}"
