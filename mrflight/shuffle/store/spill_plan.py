"""Which partitions are spilled: a plan, made of numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key")


class Resident(NamedTuple, Generic[Key]):
    """A partition's bytes in memory, and when it was last used, as a number that grows."""

    partition: Key
    size_bytes: int
    touched: int


def plan_spill(resident: Sequence[Resident[Key]], excess_bytes: int) -> list[Key]:
    """The partitions to spill, in order, until ``excess_bytes`` are in memory no more.

    The coldest first, of those that hold an average share or more: a write is
    then large, and what is small may still grow. After them the others,
    coldest first as well.
    """
    total = sum(each.size_bytes for each in resident)
    chosen: list[Key] = []
    for each in sorted(
        resident, key=lambda each: (each.size_bytes * len(resident) < total, each.touched)
    ):
        if excess_bytes <= 0:
            break
        chosen.append(each.partition)
        excess_bytes -= each.size_bytes
    return chosen
