"""An iterator that produces its next item in another thread while this one is used."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")


class _End:
    pass


_END: Final = _End()


def prefetch(items: Generator[T]) -> Generator[T]:
    """Yield the same items, one of which is produced ahead.

    What ``items`` raises is raised where the item would have come. ``items`` is closed when it
    ends, or when this iterator is closed.
    """
    try:
        with ThreadPoolExecutor(1, "prefetch") as thread:
            following = thread.submit(next, items, _END)
            while not isinstance(item := following.result(), _End):
                following = thread.submit(next, items, _END)
                yield item
    finally:
        items.close()
