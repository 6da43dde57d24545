"""Calls that are repeated until they succeed; everything that waits for servers uses this loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE_S = 0.02
_MAX_PAUSE_S = 0.5


def retry_with_backoff(
    call: Callable[[], T],
    retry_for_s: float,
    errors: tuple[type[Exception], ...],
    note: Callable[[Exception], None] = lambda error: None,
    cancelled: threading.Event | None = None,
) -> T:
    """Return what ``call`` returns, and repeat it while it raises one of ``errors``.

    It is repeated for ``retry_for_s``, with pauses that double from 20 ms to half a second, or
    until ``cancelled`` is set. ``note`` gets each error but the last one, which is raised.
    """
    give_up_at = time.monotonic() + retry_for_s
    cancelled, pause_s = cancelled or threading.Event(), _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except errors as error:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or cancelled.is_set():
                raise
            note(error)
        cancelled.wait(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)
