"""Readers that read again and again beside a stream, and check every answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.suite.waiting import await_that

Places = Mapping[int, int]
"""How far a read has come: a number of rows, or an offset, for each producer or partition."""
Read = Callable[[Places], Places]
"""Reads the table and raises if it is wrong, or behind the places of the read before."""


@dataclass
class Reader:
    """A thread that reads a table in a loop, and stops at the first wrong answer."""

    read: Read
    reads: int = 0
    error: BaseException | None = None

    def run(self, ending: threading.Event) -> None:
        places: Places = {}
        try:
            while not ending.is_set():
                places = self.read(places)
                self.reads += 1
        except BaseException as error:
            self.error = error


@contextmanager
def reading_by(read: Read, count: int = 2) -> Iterator[list[Reader]]:
    """Run so many readers until the block ends; raises what one of them has found."""
    ending = threading.Event()
    readers = [Reader(read) for _ in range(count)]
    threads = [threading.Thread(target=each.run, args=[ending]) for each in readers]
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    for each in readers:
        if each.error is not None:
            raise each.error


def await_reads(readers: list[Reader], more: int) -> None:
    """Wait until each reader has read so many times more."""
    goals = [each.reads + more for each in readers]
    await_that(
        lambda: all(
            each.reads >= goal or each.error for each, goal in zip(readers, goals, strict=True)
        ),
        f"{more} more reads of each reader",
    )


def check_counts(rows: Iterable[tuple[int, int]], before: Mapping[int, int]) -> dict[int, int]:
    """Check that each producer's numbers are there once from 0 on, and as many as before.

    ``rows`` are a producer and a number each. Returns how many numbers each producer has.
    """
    found: dict[int, list[int]] = {}
    for who, number in rows:
        found.setdefault(who, []).append(number)
    for who, mine in found.items():
        assert sorted(mine) == list(range(len(mine))), f"producer {who} has a gap or a double"
    counts = {who: len(mine) for who, mine in found.items()}
    for who, count in before.items():
        assert counts.get(who, 0) >= count, f"producer {who} went back from {count} to {counts}"
    return counts
