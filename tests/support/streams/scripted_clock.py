"""Time that passes only while a stream waits, and a thread that is none."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from mrflight.streams.stream_clock import StreamClock

MAX_WAITS = 20_000
"""A run that waits more often hangs."""


class ScriptedClock(StreamClock):
    """Time that passes only while the stream waits, and what happens at some times."""

    def __init__(self) -> None:
        super().__init__(threading.Event())
        self.time = 0.0
        self.waits: list[float] = []
        self._plan: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, deed: Callable[[], object]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._plan, (time, next(self._numbers), deed))

    def stop(self) -> None:
        """Ask the stream to stop."""
        self._stopping.set()

    def go_on(self) -> None:
        """Forget that the stream was asked to stop, for its next run."""
        self._stopping.clear()

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        assert len(self.waits) < MAX_WAITS, f"the stream waits for ever, at {self.time:g} s"
        end = self.time + seconds
        while not self.is_stopping and self._plan and self._plan[0][0] <= end:
            time, _, deed = heapq.heappop(self._plan)
            self.time = max(self.time, time)
            deed()
        if not self.is_stopping:
            self.time = end
        return self.is_stopping


class InlineThread(Executor):
    """Runs each call before `submit` returns."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **more))
        except BaseException as error:  # whoever waits for the future gets it
            future.set_exception(error)
        return future
