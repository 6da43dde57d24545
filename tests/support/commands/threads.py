"""Functions that are run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tests.support.suite.waiting import TooSlow, hang_s


def run_threads(functions: Iterable[Callable[[], object]]) -> None:
    """Run each in a thread of its own until all have ended; raises what one of them raised."""
    errors: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        await_thread(thread)
    if errors:
        raise errors[0]


def await_thread(thread: threading.Thread) -> None:
    """Return once a thread has ended. Raises `TooSlow` if it hangs."""
    limit_s = hang_s()
    thread.join(limit_s)
    if thread.is_alive():
        raise TooSlow(f"the thread {thread.name} has not ended after {limit_s:.0f} s")
