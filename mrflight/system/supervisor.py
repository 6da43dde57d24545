"""Waits in a thread for processes to end, and has replacements started."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from mrflight.system.closeable import Closeable
from mrflight.system.progress import ProgressReport, QuietProgress

log = logging.getLogger(__name__)


class Process(Protocol):
    """A process whose `fileno` becomes readable when it has ended."""

    def fileno(self) -> int: ...


P = TypeVar("P", bound=Process)


class Supervisor(Closeable, Generic[P]):
    """Calls ``replace`` with each process that ends, at once, in a thread of its own.

    The process that it returns is watched instead. `close` waits for a call under way, and there
    is none after it. If ``replace`` raises, which is a bug, ``progress`` is notified.
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
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; the processes are left as they are."""
        if not self._stopping.is_set():
            self._stopping.set()
            os.close(self._wake)  # the thread sees the end of the pipe
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
                        "a process ended and was not replaced because of a bug in mrflight: "
                        f"{type(error).__name__}: {error}"
                    )
