"""Asks, as long as a job runs, whether its shuffles are as they were, and renews their leases."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mrflight.errors import (
    DeadlineExceededError,
    JobFailedError,
    MrflightError,
    ServerUnavailableError,
)
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import NO_RETRY

if TYPE_CHECKING:
    from mrflight.shuffle.client.shuffle import Shuffle
    from mrflight.shuffle.wire.protocol import ShuffleHealth

log = logging.getLogger(__name__)

WATCH_EVERY_S = 0.25
LEASE_S = 60.0
"""Of a job's shuffles on a standing cluster. A driver that is stopped for longer loses them."""

_STOP_TIMEOUT_S = 1.0
"""Of the 5 s that an interrupted job has for its end."""


class ShuffleMonitor(Closeable):
    """Watches shuffles from a thread of its own; started by the first.

    A server that is stopped, or cut off, makes no call fail for a long time. The metadata server
    knows by its heartbeats, and whoever uses the shuffle knows by this.
    """

    def __init__(self) -> None:
        self._shuffles: list[Shuffle] = []
        self._seen: dict[str, ShuffleHealth] = {}
        self._failure: MrflightError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shuffle-watch", daemon=True)

    def add(self, shuffle: Shuffle) -> None:
        self._shuffles.append(shuffle)
        if not self._thread.is_alive() and not self._ending.is_set():
            self._thread.start()

    def remove(self, shuffle: Shuffle) -> None:
        """Let go of a shuffle that is dropped."""
        self._shuffles.remove(shuffle)

    def has_changed(self, shuffle: Shuffle, version: int) -> bool:
        """Whether a shuffle was seen with another placement, or cannot be asked for any more."""
        seen = self._seen.get(shuffle.id)
        return self._failure is not None or (seen is not None and seen.version > version)

    def check(self) -> None:
        """Raise what it was that a shuffle cannot be asked for any more, if that is so.

        Whoever asked again would wait as long as was waited already.
        """
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Watch no more; a call that is under way is not waited for long."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def _watch(self) -> None:
        while not self._ending.wait(WATCH_EVERY_S):
            for shuffle in self._shuffles[:]:
                try:
                    self._look(shuffle)
                except MrflightError as error:
                    if self._ending.is_set() or shuffle not in self._shuffles:
                        continue
                    log.warning("shuffle %s: %s", shuffle.id, error)
                    self._failure = error
                except Exception as error:  # the others' leases are still renewed
                    log.exception("shuffle %s cannot be watched", shuffle.id)
                    self._failure = _unforeseen(shuffle, error)

    def _look(self, shuffle: Shuffle) -> None:
        try:
            self._seen[shuffle.id] = shuffle.health()
        except (ServerUnavailableError, DeadlineExceededError):
            # A driver that was stopped meanwhile finds its patience at an end, and nothing wrong.
            self._seen[shuffle.id] = replace(shuffle, timeouts=NO_RETRY).health()


def _unforeseen(shuffle: Shuffle, error: Exception) -> MrflightError:
    failure = JobFailedError(
        f"shuffle {shuffle.id} cannot be watched, for an error of mrflight's own: "
        f"{type(error).__name__}: {error}"
    )
    failure.__cause__ = error
    return failure
