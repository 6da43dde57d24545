"""Asking again for what may be there soon: the one loop of all who wait for servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


def ask_patiently(
    ask: Callable[[], T],
    patience_s: float,
    errors: tuple[type[Exception], ...],
    note: Callable[[Exception], None] = lambda error: None,
    is_over: threading.Event | None = None,
) -> T:
    """What ``ask`` returns. It is called again where it raises one of ``errors``.

    For so many seconds, with pauses that double from 20 ms to half a second; or until ``is_over``
    is set, as nobody waits any more. ``note`` is given each error that is not the last, which is
    raised.
    """
    give_up_at = time.monotonic() + patience_s
    is_over, pause_s = is_over or threading.Event(), _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except errors as error:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or is_over.is_set():
                raise
            note(error)
        is_over.wait(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
