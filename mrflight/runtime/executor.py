"""What an executor is: it turns tasks into futures, and that is all it does.

Retry, deadlines and progress live once, above it, in `mrflight.scheduler.task_set`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Executor(Protocol):
    """Runs functions in workers that are warm, or become so."""

    workers: int

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a function in a worker; a lost worker ends its future with WorkerLostError."""

    def stop(self, future: Future[R]) -> None:
        """End a call now, whatever it does, without waiting for its end.

        Its future is cancelled, or ends with WorkerLostError once nothing of it runs any more.
        """

    def close(self) -> None:
        """End all workers now, whatever they do. May be called twice."""
