"""Watches a job's shuffles for changes of their placement, and renews their leases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

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

POLL_EVERY_S = 0.25
_POLLS_PER_SAMPLE = 4
LEASE_S = 60.0
"""The lease of a job's shuffles on a standing cluster. A driver that is suspended for longer loses
its shuffles."""

_STOP_TIMEOUT_S = 1.0
"""An interrupted job has 5 s in all to end."""


class ShuffleMonitor(Closeable):
    """Polls the health of shuffles in a thread, which starts with the first shuffle.

    A call to a server that is suspended or cut off fails only after a long time. The metadata
    server notices earlier, by missing heartbeats, and the tasks learn of it from here.
    """

    def __init__(self, sample: Callable[[], None] = lambda: None) -> None:
        """``sample`` is called once a second while there are shuffles, by the thread."""
        self._sample = sample
        self._shuffles: list[Shuffle] = []
        self._seen: dict[str, ShuffleHealth] = {}
        self._failure: MrflightError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shuffle-monitor", daemon=True)

    def add(self, shuffle: Shuffle) -> None:
        self._shuffles.append(shuffle)
        if not self._thread.is_alive() and not self._ending.is_set():
            self._thread.start()

    def remove(self, shuffle: Shuffle) -> None:
        """Stop watching a shuffle that is dropped."""
        self._shuffles.remove(shuffle)

    def has_changed(self, shuffle: Shuffle, version: int) -> bool:
        """Return whether the placement is newer than ``version``, or polling has failed."""
        seen = self._seen.get(shuffle.id)
        return self._failure is not None or (seen is not None and seen.version > version)

    def check(self) -> None:
        """Raise the error with which polling has failed, if it has.

        Asking the metadata server again would only repeat the wait.
        """
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop polling; a call that is under way is not awaited for long."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def _watch(self) -> None:
        polls = 0
        while not self._ending.wait(POLL_EVERY_S):
            polls += 1
            if self._shuffles and polls % _POLLS_PER_SAMPLE == 0:
                self._sample()
            for shuffle in self._shuffles[:]:
                try:
                    self._poll(shuffle)
                except MrflightError as error:
                    if self._ending.is_set() or shuffle not in self._shuffles:
                        continue
                    log.warning("shuffle %s: %s", shuffle.id, error)
                    self._failure = error
                except Exception as error:  # the others' leases are still renewed
                    log.exception("shuffle %s cannot be watched", shuffle.id)
                    self._failure = _unforeseen(shuffle, error)

    def _poll(self, shuffle: Shuffle) -> None:
        try:
            self._seen[shuffle.id] = shuffle.health()
        except (ServerUnavailableError, DeadlineExceededError):
            # If the driver was suspended, its timeout has passed although nothing is wrong.
            self._seen[shuffle.id] = shuffle.with_timeouts(NO_RETRY).health()


def _unforeseen(shuffle: Shuffle, error: Exception) -> MrflightError:
    failure = JobFailedError(
        f"shuffle {shuffle.id} cannot be watched, due to a bug in mrflight: "
        f"{type(error).__name__}: {error}"
    )
    failure.__cause__ = error
    return failure
