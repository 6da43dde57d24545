"""Runs workers as processes of this machine, forked from a fork server that has loaded Arrow.

A worker runs one call at a time. If it dies, that call is lost, and another worker is started for
the next one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrflight.errors import WorkerLostError
from mrflight.runtime.calls import decode_answer, encode_call
from mrflight.runtime.local.worker_output import WorkerOutput
from mrflight.runtime.local.worker_process import WorkerProcess
from mrflight.system.closeable import Closeable
from mrflight.system.fork_server.child import WaitLimit
from mrflight.system.fork_server.client import ForkServer
from mrflight.system.process_info import StoppedTimer

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_POLL_INTERVAL_S = 0.5
"""How often to look for workers, and a fork server, that are stopped."""


class _Call(NamedTuple):
    encoded: bytes
    future: Future[Any]


class LocalExecutor(Closeable):
    """Runs up to ``workers`` processes, which start when there are calls for them.

    They end with the driver, by its ``parent_lock``. A worker that has been stopped for
    ``stopped_timeout_s`` is killed. The fork server, which nothing can replace, is continued after
    that time.
    """

    def __init__(
        self,
        workers: int,
        fork_server: ForkServer,
        parent_lock: Path,
        stopped_timeout_s: float = 10.0,
        show_output: Callable[[str], None] | None = None,
        *,
        long_calls: int = 0,
    ) -> None:
        """``show_output`` is called with each line that a worker prints, from another thread.

        Without it, workers write to stderr themselves. ``long_calls`` may run all the time, in
        workers that do not count as such.
        """
        self.workers = workers
        self._max_workers = workers + long_calls
        self._fork_server = fork_server
        self._stopped_timeout_s = stopped_timeout_s
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closing = threading.Event()
        self._running: dict[Future[Any], WorkerProcess] = {}
        self._changing = threading.Lock()  # guards what `submit`, `stop` and the feeders change
        self._wait_limit = WaitLimit()
        self._output = WorkerOutput(show_output) if show_output is not None else None
        self._parent_lock = parent_lock
        self._workers: list[WorkerProcess] = []
        self._feeders: list[threading.Thread] = []
        self._open_calls = 0  # those that wait or run
        self._watch = threading.Thread(target=self._watch_workers, name="stopped", daemon=True)
        self._watch.start()

    def prepare(self, workers: int) -> None:
        """Start so many workers, before there are calls for them."""
        with self._changing:
            while len(self._workers) < workers:
                self._add_worker()

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        call = _Call(encode_call(function, args, kwargs), future)
        with self._changing:
            if self._closing.is_set():
                raise WorkerLostError("the workers have been ended; they run nothing any more")
            self._open_calls += 1
            if len(self._workers) < min(self._open_calls, self._max_workers):
                self._add_worker()
        self._calls.put(call)
        return future

    def stop(self, future: Future[R]) -> None:
        if future.cancel():
            return
        with self._changing:  # a worker that is found does not begin another call
            if (worker := self._running.get(future)) is not None:
                worker.kill()

    def worker_of(self, future: Future[R]) -> str:
        worker = self._running.get(future)
        return "" if worker is None else worker.name

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
        worker = WorkerProcess(
            name, self._fork_server, self._parent_lock, self._wait_limit, self._output
        )
        feeder = threading.Thread(target=self._feed, args=[worker], name=name, daemon=True)
        self._workers.append(worker)
        self._feeders.append(feeder)
        feeder.start()

    def _feed(self, worker: WorkerProcess) -> None:
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
