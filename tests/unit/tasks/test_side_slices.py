"""Slices of a skewed partition, and the outer remainder of a join."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from mrflight.errors import InconsistentMapOutputError
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.tasks.broadcast_join import relocate
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.stage_reader import PartitionSplit, StageReader, make_slice_split, make_split
from mrflight.tasks.stage_rows import StagePartition, StageRows
from tests.support.suite.messages import refused

SLICES = [SideSlice(number, 2, side=1) for number in range(2)]
REMAINDER = SideSlice(2, 2, side=1)

INFOS = tuple(PartitionInfo(7, ("here",), 1, 10, size, generation=1) for size in (100, 900))


def test_the_outer_remainder_comes_after_the_slices() -> None:
    assert [each.partition_slice for each in (*SLICES, REMAINDER)] == [
        PartitionSlice(0, 2),
        PartitionSlice(1, 2),
        None,
    ]
    assert [str(each) for each in (*SLICES, REMAINDER)] == [
        "slice 0-of-2",
        "slice 1-of-2",
        "the outer remainder",
    ]


def test_the_size_of_a_split_is_the_size_of_its_slice() -> None:
    splits = [
        make_slice_split("s", StagePartition(7, INFOS), each) for each in (*SLICES, REMAINDER)
    ]
    assert [split.size_bytes for split in splits] == [500, 500, 1000]
    assert all(split.divide(3) == [split] for split in splits)


def test_each_partition_of_a_split_is_in_one_of_its_parts() -> None:
    partitions = [StagePartition(number, INFOS) for number in range(7)]
    parts = cast(list[PartitionSplit], make_split("s", partitions).divide(3))
    assert len(parts) == 3
    assert [each for part in parts for each in part.partitions] == partitions
    assert [part.size_bytes for part in parts] == [2000, 2000, 3000]


def test_slices_of_a_rewritten_partition_are_refused() -> None:
    reader = StageReader(StageRows((), None, None, None), None)  # type: ignore[arg-type]
    again = StagePartition(7, (INFOS[0], replace(INFOS[1], generation=2)))
    one, remainder = (
        make_slice_split("s", StagePartition(7, INFOS), each) for each in (SLICES[0], REMAINDER)
    )
    with refused(InconsistentMapOutputError):
        relocate(reader, one, {(): {7: again}})
    moved = cast(PartitionSplit, relocate(reader, remainder, {(): {7: again}})[1])
    assert moved == replace(remainder, partitions=(again,))
