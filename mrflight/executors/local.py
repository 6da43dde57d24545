"""Workers as processes of this machine, by loky.

loky starts fresh interpreters, so that no lock and no thread of the driver is
copied, and notices a worker that dies.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import ParamSpec, TypeVar

from loky import process_executor
from loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from mrflight.errors import WorkerLostError
from mrflight.lifeline import hold_on

P = ParamSpec("P")
R = TypeVar("R")


class LocalExecutor:
    """``workers`` processes, started at once; they end with the driver through ``lifeline``."""

    def __init__(self, workers: int, lifeline: Path) -> None:
        self.workers = workers
        self._pool = ProcessPoolExecutor(
            max_workers=workers,
            initializer=_start_worker,
            initargs=(str(lifeline),),
            env={"PYTHONSAFEPATH": "1"},  # not to import what lies in the folder they start in
        )
        # Workers inherit the mask, so that Ctrl-C finds none of them half started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(workers):
                self._pool.submit(_warm)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        answer: Future[R] = Future()
        try:
            inner = self._pool.submit(function, *args, **kwargs)
        except BrokenProcessPool as error:  # a worker died while it had nothing to do
            answer.set_exception(_lost(error))
            return answer
        inner.add_done_callback(lambda done: _pass_on(done, answer))
        return answer

    def close(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)


def _pass_on(inner: Future[R], answer: Future[R]) -> None:
    """Give a future's end to another, a dead worker as the error that it is."""
    if inner.cancelled():
        answer.cancel()
        return
    error = inner.exception()
    if isinstance(error, BrokenProcessPool):
        answer.set_exception(_lost(error))
    elif error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(inner.result())


def _lost(error: BrokenProcessPool) -> WorkerLostError:
    return WorkerLostError(
        "a worker process ended in the middle of a task: killed from outside, out of memory, or "
        f"crashed in native code ({str(error).splitlines()[-1].strip()})"
    )


def _start_worker(lifeline: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which ends us
    os.dup2(2, 1)  # what a user's function prints is for people: stdout is for the result
    # A worker that holds a user's model is not leaking: loky would end it for growing by 300 MB.
    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize
    folder = Path(lifeline).parent
    hold_on(Path(lifeline), at_end=lambda: shutil.rmtree(folder, ignore_errors=True))
    import pyarrow as pa

    pa.set_cpu_count(1)  # one process per core: threads inside only take turns
    pa.set_io_thread_count(1)


def _warm() -> None:
    """Import what every task needs while the cluster starts."""
    for module in ("mrflight.workers.tasks", "pyarrow.compute", "pyarrow.csv"):
        import_module(module)
