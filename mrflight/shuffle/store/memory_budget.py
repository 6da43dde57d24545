"""The memory budget of a store, and the queue of puts that wait for it.

This module knows no blocks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.shuffle.store.store_totals import StoreTotals
from mrflight.units import format_bytes

SOFT_MARK = 0.8
"""The fraction of the budget above which spilling starts, so that writers rarely have to wait."""
LOW_MARK = 0.5
"""The fraction of the budget at which spilling stops, so that it writes much at a time."""

_HINT = "and spilling does not keep up; a faster disk or more memory would help"

Owner = TypeVar("Owner")


@dataclass(eq=False)
class _Wait(Generic[Owner]):
    owner: Owner
    size: int
    refusal: MrflightError | None = None


class MemoryBudget(Generic[Owner]):
    """Counts held bytes and keeps them within the budget; waiting puts are served in order.

    Something larger than the whole budget is admitted when nothing else is held. Every method must
    be called with the lock of ``changed`` held; `take` releases it while it waits.
    """

    def __init__(
        self,
        budget_bytes: int,
        changed: threading.Condition,
        totals: StoreTotals | None = None,
        hint: str = _HINT,
    ) -> None:
        """``totals`` add up the time of the waits; ``hint`` is the end of a timeout's message."""
        self.held_bytes = 0
        self._other_bytes = 0
        self._hint = hint
        self._budget = budget_bytes
        self._changed = changed
        self._totals = totals or StoreTotals()
        self._waits: deque[_Wait[Owner]] = deque()
        self._spilling_fails = False
        self._closed: Callable[[], MrflightError] | None = None

    @property
    def budget_bytes(self) -> int:
        return self._budget

    @property
    def excess_bytes(self) -> int:
        """The bytes to spill now: 0 below the soft mark, otherwise as much as is above the low one.

        They are at most those that can be spilled. While spilling fails, it is only tried again if
        a put waits.
        """
        return min(self._wanted_bytes, self.held_bytes - self._other_bytes)

    @property
    def _wanted_bytes(self) -> int:
        low = int(self._budget * LOW_MARK)
        if self._waits and not self._fits(self._waits[0].size):
            room = self._budget - max(wait.size for wait in self._waits)
            return self.held_bytes - max(0, min(low, room))
        if self.held_bytes > self._budget * SOFT_MARK and not self._spilling_fails:
            return self.held_bytes - low
        return 0

    def is_short(self, size: int) -> bool:
        """Return whether ``size`` bytes more would start spilling."""
        return self.held_bytes + size > self._budget * SOFT_MARK

    def take(self, size: int, owner: Owner, timeout_s: float) -> None:
        """Hold ``size`` bytes more; wait until they fit.

        Raises DeadlineExceededError, or the error that the wait is refused with.
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

    def count_other(self, size: int) -> None:
        """Count bytes that cannot be spilled, without a wait; a negative size frees."""
        self._other_bytes += size
        self.give_back(-size)

    def spilled(self) -> None:
        """Note that spilling works."""
        self._spilling_fails = False

    def spilling_failed(self, error: Callable[[], MrflightError]) -> None:
        """Note that spilling fails: every waiting put raises an ``error``."""
        self._spilling_fails = True
        self.refuse(lambda _: True, error)

    def refuse(self, which: Callable[[Owner], bool], error: Callable[[], MrflightError]) -> None:
        """End the waits of some owners; each raises an ``error``."""
        for wait in [wait for wait in self._waits if which(wait.owner)]:
            wait.refusal = error()
            self._waits.remove(wait)  # at once, so that nothing is spilled for it
        self._changed.notify_all()

    def close(self, error: Callable[[], MrflightError]) -> None:
        """End all waits, now and later; each raises an ``error``."""
        self._closed = error
        self.refuse(lambda _: True, error)

    def _fits(self, size: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size <= self._budget

    def _wait(self, wait: _Wait[Owner], timeout_s: float) -> None:
        if self._closed is not None:
            raise self._closed()
        self._waits.append(wait)
        self._changed.notify_all()
        since = time.monotonic()
        try:
            ended = self._changed.wait_for(lambda: wait.refusal or self._is_next(wait), timeout_s)
            if wait.refusal is not None:
                raise wait.refusal
            if not ended:
                raise DeadlineExceededError(
                    f"a block of {format_bytes(wait.size)} found no memory for {timeout_s:.0f} s: "
                    f"{format_bytes(self.held_bytes)} of {format_bytes(self._budget)} are held, "
                    f"{self._hint}"
                )
        finally:
            self._totals.waited_s += time.monotonic() - since
            if wait.refusal is None:
                self._waits.remove(wait)
            self._changed.notify_all()

    def _is_next(self, wait: _Wait[Owner]) -> bool:
        return self._waits[0] is wait and self._fits(wait.size)
