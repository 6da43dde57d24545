"""A stream whose next item is made in another thread while this one is consumed."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")


class _End:
    pass


_END: Final = _End()


def prefetch(items: Generator[T]) -> Generator[T]:
    """The same items, one of which is made ahead; what ``items`` raises is raised in its place.

    ``items`` is closed when it ends, or when this iterator is.
    """
    try:
        with ThreadPoolExecutor(1, "prefetch") as thread:
            following = thread.submit(next, items, _END)
            while not isinstance(item := following.result(), _End):
                following = thread.submit(next, items, _END)
                yield item
    finally:
        items.close()
