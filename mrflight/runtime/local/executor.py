"""Runs workers as processes of this machine, forked from a fork server that has loaded Arrow.

A worker runs one call at a time. If it dies, that call is lost, and another worker is started for
the next one.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrflight.errors import JobFailedError, WorkerLostError
from mrflight.runtime.calls import decode_answer, encode_call
from mrflight.runtime.local.worker_output import WorkerOutput
from mrflight.system.closeable import Closeable
from mrflight.system.fork_server.child import Streams, WaitLimit
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.process_info import StoppedTimer, oom_kills, signal_name

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_POLL_INTERVAL_S = 0.5
"""How often to look for workers, and a fork server, that are stopped."""

_END_TIMEOUT_S = 5.0
"""How long it takes at most until the end of a worker is known, after its channel has closed."""

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}


class _Call(NamedTuple):
    encoded: bytes
    future: Future[Any]


class LocalExecutor(Closeable):
    """Runs up to ``workers`` processes. They end with the driver, by its ``parent_lock``.

    A worker that has been stopped for ``stopped_timeout_s`` is killed. The fork server, which
    nothing can replace, is continued after that time.
    """

    def __init__(
        self,
        workers: int,
        fork_server: ForkServer,
        parent_lock: Path,
        stopped_timeout_s: float = 10.0,
        show_output: Callable[[str], None] | None = None,
        *,
        at_once: int | None = None,
    ) -> None:
        """Start ``at_once`` workers; the others start when there is a call for them.

        ``show_output`` is called with each line that a worker prints, from another thread. Without
        it, workers write to stderr themselves.
        """
        self.workers = workers
        self._fork_server = fork_server
        self._stopped_timeout_s = stopped_timeout_s
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closing = threading.Event()
        self._running: dict[Future[Any], _Worker] = {}
        self._changing = threading.Lock()  # guards what `submit`, `stop` and the feeders change
        self._wait_limit = WaitLimit()
        self._output = WorkerOutput(show_output) if show_output is not None else None
        self._arguments = [str(parent_lock)]
        self._workers: list[_Worker] = []
        self._feeders: list[threading.Thread] = []
        self._open_calls = 0  # those that wait or run
        for _ in range(workers if at_once is None else at_once):
            self._add_worker()
        self._watch = threading.Thread(target=self._watch_workers, name="stopped", daemon=True)
        self._watch.start()

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        call = _Call(encode_call(function, args, kwargs), future)
        with self._changing:
            if self._closing.is_set():
                raise WorkerLostError("the workers have been ended; they run nothing any more")
            self._open_calls += 1
            if len(self._workers) < min(self._open_calls, self.workers):
                self._add_worker()
        self._calls.put(call)
        return future

    def stop(self, future: Future[R]) -> None:
        if future.cancel():
            return
        with self._changing:  # a worker that is found does not begin another call
            if (worker := self._running.get(future)) is not None:
                worker.kill()

    def close(self) -> None:
        with self._changing:  # no worker is added any more
            self._closing.set()
        self._wait_limit.expire()  # the feeders are waited for below
        for worker in self._workers:
            worker.close()
        for _ in self._feeders:
            self._calls.put(None)
        for thread in (*self._feeders, self._watch):
            thread.join()
        if self._output is not None:
            self._output.close()

    def _add_worker(self) -> None:
        """Start another worker, and the thread that gives it calls."""
        name = f"worker{len(self._workers)}"
        worker = _Worker(name, self._fork_server, self._arguments, self._wait_limit, self._output)
        feeder = threading.Thread(target=self._feed, args=[worker], name=name, daemon=True)
        self._workers.append(worker)
        self._feeders.append(feeder)
        feeder.start()

    def _feed(self, worker: _Worker) -> None:
        """Send one worker call after call."""
        while (call := self._calls.get()) is not None:
            if self._closing.is_set():
                call.future.cancel()
                continue
            try:
                worker.ensure_alive()  # before the call counts as running, and can be stopped
            except Exception as error:
                self._end(call)
                if call.future.set_running_or_notify_cancel():
                    call.future.set_exception(error)
                continue
            with self._changing:  # a running call can be stopped
                if not call.future.set_running_or_notify_cancel():
                    self._open_calls -= 1
                    continue
                self._running[call.future] = worker
            try:
                answer = decode_answer(worker.run(call.encoded))
            except BaseException as error:  # the caller handles it
                self._end(call)
                call.future.set_exception(error)
            else:
                self._end(call)
                call.future.set_result(answer)
        worker.close()

    def _watch_workers(self) -> None:
        """Handle stopped processes: a job could wait for such a worker for ever."""
        stopped = StoppedTimer()
        while not self._closing.wait(_POLL_INTERVAL_S):
            try:
                if stopped.reached(self._fork_server.pid, self._stopped_timeout_s):
                    self._fork_server.wake()
                for worker in list(self._workers):
                    worker.check_stopped(self._stopped_timeout_s)
            except Exception:  # otherwise the thread would end silently
                log.exception("checking the workers failed; it is tried again")

    def _end(self, call: _Call) -> None:
        """Count a call as ended, before its caller learns of it and may submit another one."""
        with self._changing:
            self._open_calls -= 1
            self._running.pop(call.future, None)


class _Worker:
    """A worker process, or its replacement."""

    def __init__(
        self,
        name: str,
        fork_server: ForkServer,
        arguments: list[str],
        wait_limit: WaitLimit,
        output: WorkerOutput | None,
    ) -> None:
        self.name = name
        self._fork_server = fork_server
        self._arguments = arguments
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
        raise WorkerLostError(
            f"a worker process ended in the middle of a task: {self._describe_end(before)}"
        )

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
                self._arguments,
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
