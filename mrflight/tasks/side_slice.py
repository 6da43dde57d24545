"""What one of several tasks makes of a partition that is too large for one of them."""

from __future__ import annotations

from typing import NamedTuple

from mrflight.shuffle.wire.tickets import PartitionSlice


class Portion(NamedTuple):
    """A share of one side's rows, with all of the others'; or the rest.

    The rest is what no share can know of: the others' rows that meet none of any share. It is a
    portion of the joins that have such rows, comes after all shares, and reads every side whole.
    """

    number: int
    """Among all of the partition."""
    shares: int
    """How many of the portions are shares."""
    side: int = 0
    """That is shared."""

    @property
    def share(self) -> PartitionSlice | None:
        """None: the rest."""
        return PartitionSlice(self.number, self.shares) if self.number < self.shares else None

    def __str__(self) -> str:
        return f"share {self.share}" if self.share else "the rest"
