"""The one call that makes a job's parts visible, and whether it may still do so."""

from __future__ import annotations

from collections.abc import Callable

from mrflight.interruptible import interruptibly


class Landing:
    """Of one job."""

    def __init__(self) -> None:
        self._is_under_way = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether the call was left alone, and may land later: what it names has to stay."""
        return self._is_under_way

    def call(self, call: Callable[[], None]) -> None:
        """Make the call; in the main thread an interrupt ends the wait, and not the call."""
        self._is_under_way = True
        try:
            interruptibly(call)
        except Exception:  # it has ended: what came of it can be looked up
            self._is_under_way = False
            raise
        self._is_under_way = False
