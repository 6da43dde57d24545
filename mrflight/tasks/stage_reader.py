"""Reads the result of a stage as the input of another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import decode_dictionaries
from mrflight.compute.schemas import empty_batch
from mrflight.errors import InconsistentMapOutputError
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.sources.base import Reader, Split
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.stage_rows import SlicedSide, StagePartition, StageRows


class PartitionSplit(Split, frozen=True):
    """Some partitions of a stage, or a slice of one, for a map task of the next stage."""

    partitions: tuple[StagePartition, ...] = ()
    side_slice: SideSlice | None = None

    @property
    def place(self) -> str:
        first, last = self.start, self.stop - 1
        numbers = f"partition {first}" if first == last else f"partitions {first} to {last}"
        return f"{numbers} of {self.path}" if self.path else numbers

    @property
    def partition_slice(self) -> PartitionSlice | None:
        """The slice; None for whole partitions and for the outer remainder."""
        return self.side_slice.partition_slice if self.side_slice else None

    @property
    def sliced(self) -> PartitionInfo:
        """The partition of the sliced side."""
        assert self.side_slice is not None, self
        return self.partitions[0].infos[self.side_slice.side]

    def divide(self, count: int) -> list[Split]:
        """Return at most ``count`` splits of neighbouring partitions. A slice is not divided."""
        if self.side_slice is not None:
            return [self]
        total = len(self.partitions)
        count = max(1, min(count, total))
        bounds = [total * number // count for number in range(count + 1)]
        return [
            make_split(self.path, self.partitions[start:stop]) for start, stop in pairwise(bounds)
        ]


def make_split(stage: str, partitions: Sequence[StagePartition]) -> PartitionSplit:
    """Return neighbouring partitions of a stage as one split; ``stage`` is its title."""
    first, last = partitions[0].partition, partitions[-1].partition
    size = sum(each.size_bytes for each in partitions)
    return PartitionSplit(stage, first, last + 1, size, partitions=tuple(partitions))


def make_slice_split(
    stage: str, partition: StagePartition, side_slice: SideSlice
) -> PartitionSplit:
    """Return a slice of a partition as a split."""
    split = make_split(stage, [partition])
    size = split.size_bytes // (side_slice.slices if side_slice.partition_slice else 1)
    return replace(split, size_bytes=size, side_slice=side_slice)


def check_same_generation(now: PartitionInfo, then: PartitionInfo) -> None:
    """Raise InconsistentMapOutputError if a partition was written again since ``then``.

    Its new blocks differ, so its slices differ from those that have been sent on already.
    """
    if now.generation != then.generation:
        raise InconsistentMapOutputError(
            f"partition {now.partition} was lost while its slices were sent on"
        )


@dataclass
class StageReader(Reader):
    """Reads the result of a stage as the input of another one.

    Each task has its own reader, because it counts rows.
    """

    rows: StageRows
    schema: pa.Schema | None
    read_slice_rows: int | None = 0
    """The rows of slices that were read; None until all have been."""

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows by partition; without any, an empty batch."""
        rows = self.read_encoded(split)
        return map(decode_dictionaries, rows) if self.rows.passes_rows_on else rows

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows as `read` does, but leave dictionaries encoded."""
        assert isinstance(split, PartitionSplit), split
        sliced = SlicedSide(split.side_slice) if split.side_slice else None
        if sliced is not None:
            self.read_slice_rows = None
        empty: pa.Schema | None = None
        has_rows = False
        for schema, batches in self.rows.read(split.partitions, sliced):
            empty = empty or schema
            for batch in batches:
                if batch.num_rows:  # a function's result for no rows may have other types
                    has_rows = True
                    yield batch
        if not has_rows and empty is not None:
            yield empty_batch(empty)
        if sliced is not None:
            self.read_slice_rows = sliced.rows_read

    def file_rows(self, rows: int) -> int:
        """Return 0: the rows were counted when they were read from files."""
        return 0

    def slice_rows(self) -> int | None:
        """Return the rows of slices that were read; None until all have been."""
        return self.read_slice_rows
