"""The memory that a store may hold, and who waits for some of it. Knows nothing of blocks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.units import format_bytes

SOFT_MARK = 0.8
"""Of the budget: above it spilling starts, so that writers rarely have to wait."""
LOW_MARK = 0.5
"""Of the budget: spilling goes on down to it, so that it writes much at a time."""

Owner = TypeVar("Owner")


@dataclass(eq=False)
class _Wait(Generic[Owner]):
    owner: Owner
    size: int
    refusal: MrflightError | None = None


class MemoryBudget(Generic[Owner]):
    """Counts held bytes; lets nobody go beyond the budget, first come, first served.

    What is larger than the whole budget is let in when nothing else is held.
    Every method is called with the lock of ``changed`` held; `take` lets go of
    it while it waits.
    """

    def __init__(self, budget_bytes: int, changed: threading.Condition) -> None:
        self.held_bytes = 0
        self._budget = budget_bytes
        self._changed = changed
        self._waits: deque[_Wait[Owner]] = deque()
        self._spilling_fails = False
        self._closed: Callable[[], MrflightError] | None = None

    @property
    def excess_bytes(self) -> int:
        """How much is to be spilled now: 0 below the soft mark, else down to the low one.

        While spilling fails, only somebody who waits is a reason to try again.
        """
        low = int(self._budget * LOW_MARK)
        if self._waits and not self._fits(self._waits[0].size):
            room = self._budget - max(wait.size for wait in self._waits)
            return self.held_bytes - max(0, min(low, room))
        if self.held_bytes > self._budget * SOFT_MARK and not self._spilling_fails:
            return self.held_bytes - low
        return 0

    def is_short(self, size: int) -> bool:
        """Whether ``size`` bytes more would have something spilled."""
        return self.held_bytes + size > self._budget * SOFT_MARK

    def take(self, size: int, owner: Owner, timeout_s: float) -> None:
        """Hold ``size`` bytes more, waiting until they fit.

        Raises what it was refused with, or DeadlineExceededError.
        """
        if self._waits or not self._fits(size):
            self._wait(_Wait(owner, size), timeout_s)
        self.held_bytes += size
        if self.excess_bytes:
            self._changed.notify_all()

    def give_back(self, size: int) -> None:
        """Hold ``size`` bytes less."""
        self.held_bytes -= size
        self._changed.notify_all()

    def spilled(self) -> None:
        """Spilling works."""
        self._spilling_fails = False

    def spilling_failed(self, error: Callable[[], MrflightError]) -> None:
        """Nothing will be given back soon: everybody who waits raises an ``error``."""
        self._spilling_fails = True
        self.refuse(lambda _: True, error)

    def refuse(self, which: Callable[[Owner], bool], error: Callable[[], MrflightError]) -> None:
        """Let those waits end that are of ``which`` owners; each raises an ``error``."""
        for wait in [wait for wait in self._waits if which(wait.owner)]:
            wait.refusal = error()
            self._waits.remove(wait)  # at once: it is no reason any more to spill
        self._changed.notify_all()

    def close(self, error: Callable[[], MrflightError]) -> None:
        """From now on nobody waits; who would raises an ``error``."""
        self._closed = error
        self.refuse(lambda _: True, error)

    def _fits(self, size: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size <= self._budget

    def _wait(self, wait: _Wait[Owner], timeout_s: float) -> None:
        if self._closed is not None:
            raise self._closed()
        self._waits.append(wait)
        self._changed.notify_all()
        try:
            ended = self._changed.wait_for(lambda: wait.refusal or self._is_next(wait), timeout_s)
            if wait.refusal is not None:
                raise wait.refusal
            if not ended:
                raise DeadlineExceededError(
                    f"a block of {format_bytes(wait.size)} found no memory for {timeout_s:.0f} s: "
                    f"{format_bytes(self.held_bytes)} of {format_bytes(self._budget)} are held, "
                    "and spilling does not keep up; a faster disk or more memory would help"
                )
        finally:
            if wait.refusal is None:
                self._waits.remove(wait)
            self._changed.notify_all()

    def _is_next(self, wait: _Wait[Owner]) -> bool:
        return self._waits[0] is wait and self._fits(wait.size)
