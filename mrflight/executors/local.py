"""Workers as processes of this machine, by loky.

loky starts fresh interpreters, so that no lock and no thread of the driver is
copied, and notices a worker that dies.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import ParamSpec, TypeVar

from loky.process_executor import ProcessPoolExecutor, TerminatedWorkerError

from mrflight.errors import WorkerLostError
from mrflight.lifeline import hold_on

P = ParamSpec("P")
R = TypeVar("R")


class LocalExecutor:
    """``workers`` processes, started at once; they end with the driver through ``lifeline``."""

    def __init__(self, workers: int, lifeline: Path) -> None:
        self.workers = workers
        self._pool = ProcessPoolExecutor(
            max_workers=workers, initializer=_start_worker, initargs=(str(lifeline),)
        )
        for _ in range(workers):
            self._pool.submit(_warm)

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        answer: Future[R] = Future()
        inner = self._pool.submit(function, *args, **kwargs)
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
    if isinstance(error, TerminatedWorkerError):
        lost = WorkerLostError(
            "a worker process ended in the middle of a task: killed from outside, out of memory, "
            f"or crashed in native code ({str(error).splitlines()[-1].strip()})"
        )
        answer.set_exception(lost)
    elif error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(inner.result())


def _start_worker(lifeline: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which ends us
    hold_on(Path(lifeline), at_end=lambda: None)
    import pyarrow as pa

    pa.set_cpu_count(1)  # one process per core: threads inside only take turns
    pa.set_io_thread_count(1)


def _warm() -> None:
    """Import what every task needs while the cluster starts."""
    for module in ("mrflight.workers.tasks", "pyarrow.compute", "pyarrow.csv"):
        import_module(module)
