"""Prefetching yields the same items, raises the same errors and ends in the same way."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from mrflight.system.prefetch import Prefetched, prefetch


class Counted:
    """A generator of numbers that records how many were made, in which thread, and its end."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.made = 0
        self.threads: set[str] = set()
        self.is_closed = False
        self._count = count
        self._error = error

    def items(self) -> Generator[int]:
        try:
            for number in range(self._count):
                self.made += 1
                self.threads.add(threading.current_thread().name)
                yield number
            if self._error is not None:
                raise self._error
        finally:
            self.is_closed = True


def test_the_items_come_in_order_from_another_thread() -> None:
    counted = Counted(1000)
    assert list(prefetch(counted.items())) == list(range(1000))
    assert counted.is_closed
    assert counted.threads == {"prefetch_0"}


def test_an_empty_stream_stays_empty() -> None:
    assert list(prefetch(Counted(0).items())) == []


def test_an_error_is_raised_in_its_place() -> None:
    counted = Counted(3, ValueError("after three"))
    stream = prefetch(counted.items())
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="after three"):
        next(stream)
    assert counted.is_closed


def test_only_one_item_is_made_ahead() -> None:
    counted = Counted(1000)
    stream = prefetch(counted.items())
    for number in range(10):
        assert next(stream) == number
    stream.close()  # type: ignore[attr-defined]
    assert counted.made == 11  # closing waits for the one that is made ahead
    assert counted.is_closed
    assert [thread.name for thread in threading.enumerate() if "prefetch" in thread.name] == []


def no_check() -> None:
    """Wait for the next item for as long as it takes."""


def test_items_are_produced_ahead_until_it_is_closed() -> None:
    counted = Counted(9)
    with Prefetched(counted.items(), ahead=2) as ahead:
        assert [ahead.next(no_check) for _ in range(3)] == [0, 1, 2]
        assert counted.threads == {"prefetch"}
    assert counted.is_closed
    assert counted.made <= 6  # three were taken, two were ready, and one was on its way


def test_the_end_and_an_error_come_after_the_items() -> None:
    with Prefetched(Counted(2).items()) as ahead:
        assert [ahead.next(no_check) for _ in range(3)] == [0, 1, None]
    with Prefetched(Counted(1, KeyError("gone")).items()) as ahead:
        assert ahead.next(no_check) == 0
        with pytest.raises(KeyError, match="gone"):
            ahead.next(no_check)


def test_waiting_for_an_item_can_be_given_up() -> None:
    gate = threading.Event()

    def items() -> Generator[int]:
        gate.wait()
        yield 1

    def give_up() -> None:
        raise TimeoutError

    with Prefetched(items()) as ahead:
        with pytest.raises(TimeoutError):
            ahead.next(give_up)
        gate.set()
