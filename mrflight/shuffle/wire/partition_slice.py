"""Shares of a partition: what several readers read of one that is too large for one of them.

A share is a run of the partition's blocks in input order. Every server that
holds the partition cuts it alike, as it goes by what never changes: the blocks
of the attempts that an epoch names, their order, and their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_SHARES = 2**16


class Share(NamedTuple):
    """The share with this ``number``, from 0, where there are ``of`` of them."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}-of-{self.of}"


def in_share(sizes: Iterable[int], total: int, share: Share) -> Iterator[bool]:
    """Of each block, whether it is in the share; shares differ by less than a block.

    ``sizes`` are those of the blocks in their order, ``total`` is their sum.
    """
    start = 0
    for size in sizes:
        middle = 2 * start + size
        number = middle * share.of // (2 * total) if total else 0
        yield min(number, share.of - 1) == share.number  # at the end may be blocks without bytes
        start += size
