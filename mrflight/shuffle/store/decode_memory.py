"""The memory for rows that a server decodes for plain clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mrflight.errors import MrflightError
from mrflight.shuffle.store.canonical_slices import MAX_ROW_BYTES
from mrflight.shuffle.store.memory_budget import MemoryBudget

SHARE = 4
"""Decoded rows have at most one part in so many of the memory."""
_TIMEOUT_S = 60.0
_HINT = "for other readers; try again later, read fewer partitions at a time, or give more memory"


class DecodeMemory:
    """Lets readers wait while others have what they may hold together. Safe for many threads.

    ``count`` is called with each change of the held bytes, which is negative when they are freed.
    """

    def __init__(self, budget_bytes: int, count: Callable[[int], None]) -> None:
        self._changed = threading.Condition()
        self._budget = MemoryBudget[None](budget_bytes // SHARE, self._changed, hint=_HINT)
        self._count = count

    @property
    def max_block_bytes(self) -> int:
        """What one block may be decoded to."""
        return max(MAX_ROW_BYTES, self._budget.budget_bytes)

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Hold memory until the context ends; raises DeadlineExceededError if there is none."""
        with self._changed:
            self._budget.take(size, None, _TIMEOUT_S)
        self._count(size)
        try:
            yield
        finally:
            self._count(-size)
            with self._changed:
                self._budget.give_back(size)

    def close(self, error: Callable[[], MrflightError]) -> None:
        """End all waits, now and later."""
        with self._changed:
            self._budget.close(error)
