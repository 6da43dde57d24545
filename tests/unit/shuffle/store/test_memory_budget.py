"""Held bytes stay within the budget, waits are served in order, and every wait ends."""

from __future__ import annotations

import threading

import pytest

from mrflight.errors import DeadlineExceededError, SpillError
from mrflight.shuffle.store.memory_budget import MemoryBudget
from tests.support.clusters.spilling import Peak
from tests.support.commands.threads import await_thread
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s


class Waiting:
    """A budget of 100 bytes, and threads that take some of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.budget = MemoryBudget[str](100, self.changed)
        self.peak = Peak(self.budget)
        self.ended: dict[str, BaseException | None] = {}
        self._threads: list[threading.Thread] = []

    def take(self, size: int, owner: str = "", timeout_s: float = 3600.0) -> None:
        with self.changed:
            self.budget.take(size, owner, timeout_s)

    def start(self, owner: str, size: int) -> None:
        """Take in a thread, which is known to wait when this returns."""

        def run() -> None:
            try:
                self.take(size, owner)
                self.ended[owner] = None
            except Exception as error:
                self.ended[owner] = error
            with self.changed:
                self.changed.notify_all()

        waits = len(self.budget._waits)
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.budget._waits) == waits + 1, hang_s())

    def give_back(self, size: int) -> None:
        with self.changed:
            self.budget.give_back(size)

    def until_ended(self, *owners: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(owners) == set(self.ended), hang_s())

    def join(self) -> None:
        for thread in self._threads:
            await_thread(thread)
            assert not thread.is_alive()


def test_waits_are_served_in_order() -> None:
    waiting = Waiting()
    waiting.take(90)
    waiting.start("large", 60)
    waiting.start("small", 5)
    waiting.give_back(40)
    assert waiting.ended == {}, "the small one would fit, and has to wait for the large one"
    waiting.give_back(10)
    waiting.until_ended("large")
    waiting.give_back(10)
    waiting.until_ended("large", "small")
    assert waiting.ended == {"large": None, "small": None}
    assert waiting.budget.held_bytes == 95
    assert waiting.peak.bytes == 100
    waiting.join()


def test_something_larger_than_the_budget_is_admitted_alone() -> None:
    waiting = Waiting()
    waiting.take(1_000)
    assert waiting.budget.excess_bytes == 950
    waiting.start("next", 1_000)
    assert waiting.budget.excess_bytes == 1_000
    waiting.give_back(1_000)
    waiting.until_ended("next")
    waiting.join()


def test_spilling_starts_at_the_soft_mark_and_goes_down_to_the_low_one() -> None:
    waiting = Waiting()
    waiting.take(80)
    assert waiting.budget.excess_bytes == 0
    assert waiting.budget.is_short(1)
    waiting.take(1)
    assert waiting.budget.excess_bytes == 31


def test_nothing_is_spilled_for_bytes_that_cannot_be() -> None:
    """Or the spiller would look for blocks again and again."""
    waiting = Waiting()
    with waiting.changed:
        waiting.budget.count_other(90)
    assert waiting.budget.held_bytes == 90
    assert waiting.budget.excess_bytes == 0
    waiting.take(10)
    assert waiting.budget.excess_bytes == 10
    with waiting.changed:
        waiting.budget.count_other(-90)
    assert waiting.budget.excess_bytes == 0
    assert waiting.budget.held_bytes == 10


def test_no_wait_is_longer_than_its_deadline() -> None:
    waiting = Waiting()
    waiting.take(100)
    with refused(DeadlineExceededError):
        waiting.take(1, timeout_s=0.01)
    waiting.give_back(100)
    waiting.take(1)


def test_failed_spilling_ends_waits_and_the_next_wait_tries_again() -> None:
    waiting = Waiting()
    waiting.take(100)
    waiting.start("now", 10)
    with waiting.changed:
        waiting.budget.spilling_failed(lambda: SpillError("disk full"))
    waiting.until_ended("now")
    assert isinstance(waiting.ended["now"], SpillError)
    assert waiting.budget.excess_bytes == 0, "nobody waits, so a broken disk is left alone"
    waiting.start("later", 10)
    assert waiting.budget.excess_bytes == 50
    waiting.give_back(10)
    waiting.until_ended("now", "later")
    with waiting.changed:
        waiting.budget.spilled()
    assert waiting.budget.excess_bytes == 50
    waiting.join()


def test_only_the_chosen_owners_are_refused() -> None:
    waiting = Waiting()
    waiting.take(100)
    waiting.start("a", 10)
    waiting.start("b", 10)
    with waiting.changed:
        waiting.budget.refuse(lambda owner: owner == "a", lambda: SpillError("a"))
    waiting.until_ended("a")
    with waiting.changed:
        waiting.budget.close(lambda: SpillError("closed"))
    waiting.until_ended("a", "b")
    with pytest.raises(SpillError, match="closed"):
        waiting.take(10)
    waiting.join()
