"""Files that are being closed while others are written.

A store may keep whoever closes a file waiting: HDFS's client, which asks before the data node has
told the name node of the last block, asks again half a second later. A task of many files would
wait most of its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self


class AsyncCloser:
    """Closes files in threads; on leaving it all are closed, or one has raised why it is not."""

    def __init__(self, at_once: int) -> None:
        """At most ``at_once`` are under way; with 0 a file is closed where it is ended."""
        self._at_once = at_once
        self._under_way: deque[Future[None]] = deque()
        self._threads = ThreadPoolExecutor(at_once, "closing") if at_once else None

    def begin(self, close: Callable[[], None]) -> Future[None]:
        """What comes of ``close``, which may be under way; raises what an earlier one raised."""
        future: Future[None] = Future()
        if self._threads is None:
            close()
            future.set_result(None)
            return future
        while len(self._under_way) >= self._at_once:
            self._under_way.popleft().result()
        future = self._threads.submit(close)
        self._under_way.append(future)
        return future

    def end(self) -> None:
        """Wait for all; raises what the first of those that failed raised."""
        wait(self._under_way)
        while self._under_way:
            self._under_way.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.end()
        finally:
            if self._threads is not None:
                self._threads.shutdown()
