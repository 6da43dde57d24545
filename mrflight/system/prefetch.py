"""Iterators that produce their next items in another thread while this one is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from queue import Empty, Full, Queue
from typing import Final, Generic, NamedTuple, TypeVar

from mrflight.system.closeable import Closeable
from mrflight.system.signals import POLL_INTERVAL_S

T = TypeVar("T")

_END_TIMEOUT_S = 1.0
"""How long `Prefetched.close` waits for an item that is being produced."""


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


class _Failure(NamedTuple):
    error: BaseException


class Prefetched(Closeable, Generic[T]):
    """Items that a thread produces ahead, for a thread that must not wait for long.

    Unlike `prefetch`, it can be closed while an item is being produced.
    """

    def __init__(self, items: Generator[T], ahead: int = 2) -> None:
        """``ahead`` items are kept. The thread closes ``items`` when they, or this, end."""
        self._items = items
        self._ready: Queue[T | _Failure | _End] = Queue(ahead)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="prefetch", daemon=True)
        self._thread.start()

    def next(self, check: Callable[[], None]) -> T | None:
        """Return the next item, or None at the end; raise what producing it has raised.

        While there is none, ``check`` is called again and again, and may raise.
        """
        while True:
            try:
                item = self._ready.get(timeout=POLL_INTERVAL_S)
            except Empty:
                check()
                continue
            if isinstance(item, _Failure):
                raise item.error
            return None if isinstance(item, _End) else item

    def close(self) -> None:
        """Produce no more. An item that takes too long is left to the thread, which then ends."""
        self._is_closed.set()
        with suppress(Empty):
            self._ready.get_nowait()  # or the thread would wait for room
        self._thread.join(_END_TIMEOUT_S)

    def _produce(self) -> None:
        try:
            with closing(self._items):
                for item in self._items:
                    if not self._put(item):
                        return
            self._put(_END)
        except BaseException as error:  # the other thread handles it
            self._put(_Failure(error))

    def _put(self, item: T | _Failure | _End) -> bool:
        """Wait until there is room for an item; return False if nobody wants it any more."""
        while not self._is_closed.is_set():
            try:
                self._ready.put(item, timeout=POLL_INTERVAL_S)
                return True
            except Full:
                continue
        return False
