"""What a task, or a map of a later stage, makes of a heavy partition: a share, or the rest."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from mrflight.errors import InconsistentMapOutputError
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.tasks.broadcast_join import as_now
from mrflight.tasks.side_slice import Portion
from mrflight.tasks.stage_rows import (
    PartitionSplit,
    StagePartition,
    StageReader,
    StageRows,
    portion_of,
)

SHARES = [Portion(number, 2, side=1) for number in range(2)]
REST = Portion(2, 2, side=1)

INFOS = tuple(PartitionInfo(7, ("here",), 1, 10, size, generation=1) for size in (100, 900))


def test_the_rest_comes_after_the_shares_and_is_none() -> None:
    assert [each.share for each in (*SHARES, REST)] == [
        PartitionSlice(0, 2),
        PartitionSlice(1, 2),
        None,
    ]
    assert [str(each) for each in (*SHARES, REST)] == ["share 0-of-2", "share 1-of-2", "the rest"]


def test_a_split_of_the_rest_weighs_what_it_reads() -> None:
    splits = [portion_of("s", StagePartition(7, INFOS), each) for each in (*SHARES, REST)]
    assert [split.size_bytes for split in splits] == [500, 500, 1000]
    assert all(split.cut(3) == [split] for split in splits)


def test_a_partition_that_was_written_again_has_other_shares_and_the_same_rest() -> None:
    reader = StageReader(StageRows((), None, None, None), None)  # type: ignore[arg-type]
    again = StagePartition(7, (INFOS[0], replace(INFOS[1], generation=2)))
    share, rest = (portion_of("s", StagePartition(7, INFOS), each) for each in (SHARES[0], REST))
    with pytest.raises(InconsistentMapOutputError, match="partition 7 was lost while its shares"):
        as_now(reader, share, {(): {7: again}})
    moved = cast(PartitionSplit, as_now(reader, rest, {(): {7: again}})[1])
    assert moved == replace(rest, partitions=(again,))
