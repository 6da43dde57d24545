"""Tests of calls side by side: their results, their order, and how many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mrflight.system.side_by_side import side_by_side
from tests.support.suite.waiting import hang_s

THREADS = 4


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(side_by_side(lambda item: item * 2, range(50), threads)) == [*range(0, 100, 2)]
    assert list(side_by_side(str, (), threads)) == []


def test_calls_wait_together() -> None:
    """Each call waits for the others: one after the other they would never return."""
    together = threading.Barrier(THREADS)
    ranks = list(side_by_side(lambda _: together.wait(hang_s()), range(3 * THREADS), THREADS))
    assert sorted(ranks) == sorted([*range(THREADS)] * 3)


@pytest.mark.parametrize("threads", [1, THREADS])
def test_the_first_error_is_raised_in_its_place_and_later_items_are_given_up(threads: int) -> None:
    begun: list[int] = []

    def invert(number: int) -> float:
        begun.append(number)
        return 1 / (number - 3)

    results = side_by_side(invert, range(1000), threads)
    assert [next(results) for _ in range(3)] == [-1 / 3, -1 / 2, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(begun) <= 3 + 3 * threads
    assert threading.active_count() == 1 or not [
        thread for thread in threading.enumerate() if thread.name.startswith("side-by-side")
    ]


def test_items_are_taken_as_results_are() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = side_by_side(lambda item: item, items(), THREADS)
    assert next(results) == 0
    assert len(taken) <= 2 * THREADS + 1
    results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 2 * THREADS + 1
