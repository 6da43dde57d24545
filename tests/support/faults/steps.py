"""Steps of a process of the product, at which a test has something done to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a step is: before a function is called, or after that."""

    owner: Any
    name: str
    is_after: bool = False


def at_step(place: Place, number: int, act: Callable[[], None]) -> None:
    """Have this process act once, when it comes to a place for the ``number``-th time, from 1."""
    function: Callable[..., Any] = getattr(place.owner, place.name)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            act()

    def stopping(*args: Any, **more: Any) -> Any:
        if not place.is_after:
            count()
        result = function(*args, **more)
        if place.is_after:
            count()
        return result

    setattr(place.owner, place.name, stopping)
