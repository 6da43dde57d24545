"""The protocol of executors, which turn tasks into futures and do nothing else.

Retry, deadlines and progress live once, above it, in `mrflight.scheduler.task_set`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Executor(Protocol):
    """Runs functions in worker processes, which stay for the whole job."""

    workers: int

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a function in a worker; if that is lost, the future ends with WorkerLostError."""

    def stop(self, future: Future[R]) -> None:
        """End a call now, without waiting for its end.

        Its future is cancelled, or ends with WorkerLostError when nothing of it runs any more.
        """

    def worker_of(self, future: Future[R]) -> str:
        """Return the worker that runs a call; empty if none does, or if it is not known."""

    def close(self) -> None:
        """End all workers now. May be called twice."""
