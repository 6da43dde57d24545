"""Closing files in the background while others are written.

Some stores take long to close a file. The client of HDFS may ask the name node before the data
node has reported the last block, and then asks again half a second later. Without this, a task
that writes many files would spend most of its time waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Self


class AsyncCloser:
    """Closes files in threads. On exit all are closed, or the first failure is raised."""

    def __init__(self, max_pending: int) -> None:
        """At most ``max_pending`` files are being closed; with 0, `submit` closes them itself."""
        self._max_pending = max_pending
        self._pending: deque[Future[None]] = deque()
        self._threads = ThreadPoolExecutor(max_pending, "closing") if max_pending else None

    def submit(self, close: Callable[[], None]) -> Future[None]:
        """Call ``close``, perhaps in a thread; raise what an earlier call has raised."""
        future: Future[None] = Future()
        if self._threads is None:
            close()
            future.set_result(None)
            return future
        while len(self._pending) >= self._max_pending:
            self._pending.popleft().result()
        future = self._threads.submit(close)
        self._pending.append(future)
        return future

    def wait(self) -> None:
        """Wait for all calls, then raise what the first of those that failed has raised."""
        wait(self._pending)
        while self._pending:
            self._pending.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            if self._threads is not None:
                self._threads.shutdown()
