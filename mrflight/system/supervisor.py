"""A thread that waits for processes to end, and has others started in their place."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from mrflight.system.closeable import Closes
from mrflight.system.progress import ProgressReport, QuietProgress

log = logging.getLogger(__name__)


class Process(Protocol):
    """Its `fileno` becomes readable when it has ended."""

    def fileno(self) -> int: ...


P = TypeVar("P", bound=Process)


class Supervision(Closes, Generic[P]):
    """Calls ``replace`` with each process that ends, at once, in a thread of its own.

    What that returns is watched in its place. After `close`, which waits for a call under way,
    it is not called any more. Where it raises, which is a bug, ``progress`` is notified.
    """

    def __init__(
        self,
        processes: Iterable[P],
        replace: Callable[[P], P | None],
        progress: ProgressReport | None = None,
    ) -> None:
        self._replace = replace
        self._progress = progress or QuietProgress()
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._selector.register(self._woken, selectors.EVENT_READ)
        for process in processes:
            self._selector.register(process, selectors.EVENT_READ, process)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervision", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; the processes are left as they are."""
        if not self._stopping.is_set():
            self._stopping.set()
            os.close(self._wake)  # which the thread reads as an end
            self._thread.join()
            self._selector.close()
            os.close(self._woken)

    def _watch(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if self._stopping.is_set():
                    return
                self._selector.unregister(key.fileobj)
                try:
                    other = self._replace(key.data)
                    if other is not None:
                        self._selector.register(other, selectors.EVENT_READ, other)
                except Exception as error:  # the others are still watched
                    log.exception("a process that ended was not replaced")
                    self._progress.notify(
                        "a process ended, and none takes its place, for an error of mrflight's "
                        f"own: {type(error).__name__}: {error}"
                    )
