"""How much each caller of a server may hold at the same time. Nothing here knows what is held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mrflight.errors import QuotaExceededError
from mrflight.units import format_count


class Quota(NamedTuple):
    """What one caller may hold: so many things, of so many partitions together."""

    what: str
    """The word for a thing."""
    things: int
    partitions: int


class Holdings:
    """Remembers who holds what, as long as this process lives. Safe for many threads.

    ``partitions_of`` returns the partitions of a thing, and 0 once it is gone.
    """

    def __init__(self, quota: Quota, partitions_of: Callable[[str], int]) -> None:
        self._quota = quota
        self._partitions_of = partitions_of
        self._lock = threading.Lock()
        self._held: dict[str, set[str]] = {}
        """The things of each caller; some of them may be gone."""

    @contextmanager
    def adding(self, caller: str, thing: str, partitions: int) -> Iterator[None]:
        """Let a caller make a thing in the context, or ask for one that it holds already.

        ``partitions`` are all that the thing has then.
        Raises QuotaExceededError if it would then hold too much.
        """
        with self._lock:
            sizes = {each: self._partitions_of(each) for each in self._held.get(caller, ())}
            held = {each: size for each, size in sizes.items() if size}
            others = sum(size for each, size in held.items() if each != thing)
            self._check(caller, len(held.keys() - {thing}) + 1, others + partitions)
            yield
            self._held[caller] = {*held, thing}

    def _check(self, caller: str, things: int, partitions: int) -> None:
        what, most, most_partitions = self._quota
        if things > most or partitions > most_partitions:
            raise QuotaExceededError(
                f"{caller!r} would hold {format_count(things, what)} of "
                f"{format_count(partitions, 'partition')}, and one caller may hold {most} of "
                f"{most_partitions} at this server; drop those that are not needed"
            )
