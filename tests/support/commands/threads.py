"""Functions that are run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

WAIT_S = 30.0
"""Longer than anything takes that ends at all."""


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
        thread.join(WAIT_S)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
