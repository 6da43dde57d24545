"""Workers as processes of this machine, forked from a fork server that has loaded Arrow.

A worker makes one call at a time. One that dies costs the call that it was
making, and is started anew for the next.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrflight.errors import JobFailedError, WorkerLostError
from mrflight.runtime.calls import decode_answer, encode_call
from mrflight.system.closeable import Closeable
from mrflight.system.fork_server.child import Waits
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.process_info import StoppedTimer, oom_kills, signal_name

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_LOOK_EVERY_S = 0.5
"""For workers, and a fork server, that stand still."""

_END_TIMEOUT_S = 5.0
"""Of a worker whose channel has closed, until its end is known."""

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}


class _Call(NamedTuple):
    encoded: bytes
    future: Future[Any]


class LocalExecutor(Closeable):
    """``workers`` processes, started at once; they end with the driver through ``parent_lock``.

    One that somebody has stopped, and that is not let go on for ``stopped_timeout_s``, is ended.
    The fork server, which nothing can replace, is let go on after as long.
    """

    def __init__(
        self,
        workers: int,
        fork_server: ForkServer,
        parent_lock: Path,
        stopped_timeout_s: float = 10.0,
    ) -> None:
        self.workers = workers
        self._fork_server = fork_server
        self._stopped_timeout_s = stopped_timeout_s
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closing = threading.Event()
        self._running: dict[Future[Any], _Worker] = {}
        self._changing = threading.Lock()  # of `_running`, whose workers may be killed meanwhile
        self._waits = Waits()
        self._workers = [
            _Worker(f"worker{number}", fork_server, [str(parent_lock)], self._waits)
            for number in range(workers)
        ]
        self._feeders = [
            threading.Thread(target=self._feed, args=[worker], name=worker.name, daemon=True)
            for worker in self._workers
        ]
        self._watch = threading.Thread(target=self._watch_workers, name="stopped", daemon=True)
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
        self._waits.end()  # of the feeders, which are waited for below
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
            try:
                worker.be_there()  # before the call runs: who is killed then is not to make it
            except Exception as error:
                if call.future.set_running_or_notify_cancel():
                    call.future.set_exception(error)
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

    def _watch_workers(self) -> None:
        """Look after who stands still: a job's only task would wait for such a worker for ever."""
        stopped = StoppedTimer()
        while not self._closing.wait(_LOOK_EVERY_S):
            try:
                if stopped.reached(self._fork_server.pid, self._stopped_timeout_s):
                    self._fork_server.wake()
                for worker in self._workers:
                    worker.look_after(self._stopped_timeout_s)
            except Exception:  # the thread would end without a word
                log.exception("the workers cannot be looked after; this is tried again")

    def _end(self, call: _Call) -> None:
        with self._changing:
            del self._running[call.future]


class _Worker:
    """A worker process, or the next one in its place."""

    def __init__(
        self, name: str, fork_server: ForkServer, arguments: list[str], waits: Waits
    ) -> None:
        self.name = name
        self._fork_server = fork_server
        self._arguments = arguments
        self._waits = waits
        self._starting = threading.Lock()
        self._is_closed = False
        self._is_killed = False
        self._start()

    def be_there(self) -> None:
        """Start another process where the last one has ended, or been killed."""
        if self._is_killed or self._process.wait(0) is not None:
            self._restart()

    def make(self, call: bytes) -> bytes:
        """The answer to a call; WorkerLostError where the process ended before it came."""
        before = oom_kills()
        try:
            self._channel.send_bytes(call)
            # A child of a dead worker may hold its channel, and leave an answer half sent.
            wait([self._channel, self._process.fileno()])
            if self._channel.poll():
                return self._channel.recv_bytes()
        except (OSError, EOFError):
            pass  # it is dead, or about to be
        raise WorkerLostError(
            f"a worker process ended in the middle of a task: {self._how_it_ended(before)}"
        )

    def look_after(self, timeout_s: float) -> None:
        """End the process where it has been stopped for so long. Does not wait for anybody."""
        if not self._starting.acquire(blocking=False):
            return  # it is being started, or killed
        try:
            if self._stopped.reached(self._process.living_pid(), timeout_s):
                self._was_stopped_s = self._stopped.seconds()
                self._kill()
            elif self._process.has_ended():
                self._hang_up()
        finally:
            self._starting.release()

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
        try:
            self._process.send_signal(signal.SIGKILL)
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """End what is sent or read by the channel, which a child of a dead worker may hold."""
        with socket.socket(fileno=os.dup(self._channel.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._fork_server.start(
                f"mrflight-{self.name}",
                "mrflight.runtime.worker:work",
                self._arguments,
                [theirs.fileno()],
                waits=self._waits,
            )
        self._channel = Connection(ours.detach())
        self._stopped = StoppedTimer()
        self._is_killed, self._was_stopped_s = False, 0.0

    def _restart(self) -> None:
        with self._starting:
            if self._is_closed:
                raise WorkerLostError("the workers are being ended")
            process, channel = self._process, self._channel
            self._start()
            process.close()
            channel.close()

    def _how_it_ended(self, oom_kills_before: int | None) -> str:
        code = self._process.wait(_END_TIMEOUT_S)
        if self._was_stopped_s:
            return (
                f"it had been stopped, by SIGSTOP, for {self._was_stopped_s:.0f} s, and was ended"
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
            return "it was killed from outside, or by the system for the memory that it took"
        if code < 0 and -code not in _CRASHES:
            return f"it was ended by {signal_name(-code)}"
        if code < 0:
            return f"it crashed in native code, by {signal_name(-code)}"
        return f"it exited with code {code}"
