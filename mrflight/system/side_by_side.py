"""Calls that wait for others, made in several threads, with their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AHEAD_PER_THREAD = 2
"""How many items of a thread are begun, or done and not yet yielded."""


def side_by_side(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield what ``function`` returns for each item, in their order; at most ``threads`` run.

    What a call raises is raised in its place. Later items, of which some may have been begun, are
    then given up. With one thread the calls are made here, each when its result is requested.
    """
    if threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads, "side-by-side")
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= threads * _AHEAD_PER_THREAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
