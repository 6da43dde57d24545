"""A store whose disk fails loses nothing that it has accepted, and reports what it cannot read."""

from __future__ import annotations

import shutil

import pytest

from mrflight.errors import CorruptBlockError, SpillError
from mrflight.shuffle.wire.block import decode_block
from tests.support.clusters.spilling import BUDGET, FIRST, KIB, NAME, SECOND, Spilling, block, rows


def test_a_block_of_a_damaged_file_comes_with_the_hash_of_what_was_put(
    spilling: Spilling,
) -> None:
    spilling.put(400, partitions=1)
    spilling.settle()
    (path,) = spilling.files()
    with path.open("r+b") as file:
        file.seek(100 * 16 * KIB)
        file.write(b"\xff")
    found = list(spilling.store.read(NAME, 0, [FIRST]))
    assert [each.xxh3 for each in found] == [block(number).xxh3 for number in range(400)]
    assert [each.rows for each in found if each != block(each.rows)] == [100]
    with pytest.raises(CorruptBlockError, match=f"{block(100).xxh3:016x} were written"):
        decode_block(found[100])


def test_a_disk_that_cannot_be_written_ends_puts_and_is_tried_again(spilling: Spilling) -> None:
    spilling.break_disk()
    expected = (
        r"cannot spill partition . of shuffle 'clicks' below .*cluster.spill_dir.*--spill-dir"
    )
    with pytest.raises(SpillError, match=expected):
        spilling.put(400)
    stats = spilling.stats()
    assert 0 < spilling.peak.bytes <= BUDGET
    assert stats.spilled_blocks == 0
    kept = [n for p in range(4) for n in rows(spilling.store.read(NAME, p, [FIRST]))]
    assert sorted(kept) == list(range(stats.blocks)), "what was taken before is still here"
    spilling.mend_disk()
    spilling.put(400, SECOND)
    assert rows(spilling.store.read(NAME, 3, [SECOND])) == [*range(3, 400, 4)]


def test_a_missing_spill_folder_is_reported(spilling: Spilling) -> None:
    spilling.put(200, partitions=1)
    spilling.settle()
    shutil.rmtree(spilling.files()[0].parent)
    with pytest.raises(SpillError, match="No such file"):
        list(spilling.store.read(NAME, 0, [FIRST]))
