"""The part of a skewed partition that one of several tasks processes."""

from __future__ import annotations

from typing import NamedTuple

from mrflight.shuffle.wire.tickets import PartitionSlice


class SideSlice(NamedTuple):
    """A slice of one side's rows with all rows of the other sides, or the outer remainder.

    The outer remainder is the rows of the other sides that match no row of any slice, which no task
    of a slice can know. Only joins that keep such rows have one. It comes after all slices, and its
    task reads all rows of every side.
    """

    number: int
    """The position among the slices of the partition and the outer remainder."""
    slices: int
    """The number of slices, without the outer remainder."""
    side: int = 0
    """The side that is sliced."""

    @property
    def partition_slice(self) -> PartitionSlice | None:
        """The slice of the side's rows; None for the outer remainder."""
        return PartitionSlice(self.number, self.slices) if self.number < self.slices else None

    def __str__(self) -> str:
        return f"slice {self.partition_slice}" if self.partition_slice else "the outer remainder"
