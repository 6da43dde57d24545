"""How much each caller of a server may hold at the same time. Nothing here knows what is held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mrflight.errors import QuotaExceededError
from mrflight.units import format_count


class Quota(NamedTuple):
    """What one caller may hold: so many things, of so many parts together."""

    what: str
    """The word for a thing."""
    things: int
    parts: int
    part: str = "partition"
    """The word for a part."""


class Holdings:
    """Remembers who holds what, as long as this process lives. Safe for many threads.

    ``parts_of`` returns the number of parts of a thing, and 0 once it is gone.
    """

    def __init__(self, quota: Quota, parts_of: Callable[[str], int]) -> None:
        self._quota = quota
        self._parts_of = parts_of
        self._lock = threading.Lock()
        self._held: dict[str, set[str]] = {}
        """The things of each caller; some of them may be gone."""

    @contextmanager
    def adding(self, caller: str, thing: str, parts: int) -> Iterator[None]:
        """Let a caller make a thing in the context, or ask for one that it holds already.

        ``partitions`` are all that the thing has then.
        Raises QuotaExceededError if it would then hold too much.
        """
        with self._lock:
            sizes = {each: self._parts_of(each) for each in self._held.get(caller, ())}
            held = {each: size for each, size in sizes.items() if size}
            others = sum(size for each, size in held.items() if each != thing)
            self._check(caller, len(held.keys() - {thing}) + 1, others + parts)
            yield
            self._held[caller] = {*held, thing}

    def _check(self, caller: str, things: int, parts: int) -> None:
        what, most, most_parts, part = self._quota
        if things > most or parts > most_parts:
            raise QuotaExceededError(
                f"{caller!r} would hold {format_count(things, what)} of "
                f"{format_count(parts, part)}, and one caller may hold {most} of "
                f"{most_parts} at this server; drop those that are not needed"
            )
