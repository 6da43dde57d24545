"""A read from a spill file gives what was written, or raises an error."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import CorruptBlockError, SpillError
from mrflight.shuffle.store.spill_file import SpillFile, append_blocks
from mrflight.shuffle.wire.block import Block, decode_block
from tests.support.faults.full_disk import largest_file
from tests.support.suite.messages import refused


def blocks(count: int, size: int = 100) -> list[Block]:
    return [Block.of(n, pa.py_buffer((b"%8d" % n * size)[:size])) for n in range(count)]


@pytest.mark.parametrize("count", [1, 5_000])  # 5,000 are more than one system call takes
def test_blocks_come_back_as_they_were(tmp_path: Path, count: int) -> None:
    first = append_blocks(tmp_path / "f", 0, blocks(count))
    second = append_blocks(tmp_path / "f", count * 100, blocks(3, size=0) + blocks(2, size=7))
    assert (tmp_path / "f").stat().st_size == count * 100 + 14
    with SpillFile(tmp_path / "f") as file:
        assert file.read(first) == blocks(count)
        assert file.read(second) == blocks(3, size=0) + blocks(2, size=7)
        assert file.read(first[-1:]) == blocks(count)[-1:]


def test_a_changed_byte_comes_with_the_hash_of_what_was_written(tmp_path: Path) -> None:
    written = append_blocks(tmp_path / "f", 0, blocks(3))
    with (tmp_path / "f").open("r+b") as damaged:
        damaged.seek(150)
        damaged.write(b"X")
    with SpillFile(tmp_path / "f") as file:
        assert file.read(written[:1]) == blocks(3)[:1]
        first, changed, last = file.read(written)
    assert [first, last] == [blocks(3)[0], blocks(3)[2]]
    assert (changed.rows, changed.xxh3) == (1, blocks(3)[1].xxh3)
    with refused(CorruptBlockError):
        decode_block(changed)


def test_a_file_that_is_too_short_or_gone_is_found(tmp_path: Path) -> None:
    written = append_blocks(tmp_path / "f", 0, blocks(3))
    os.truncate(tmp_path / "f", 250)
    with (
        SpillFile(tmp_path / "f") as file,
        refused(SpillError),
    ):
        file.read(written)
    (tmp_path / "f").unlink()
    with (
        SpillFile(tmp_path / "f") as file,
        pytest.raises(SpillError, match="No such file"),
    ):
        file.read(written)


def test_a_failed_append_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    before = append_blocks(tmp_path / "f", 0, blocks(10))
    with largest_file(5_000), pytest.raises(OSError, match="File too large"):
        append_blocks(tmp_path / "f", 1_000, blocks(100))
    assert (tmp_path / "f").stat().st_size == 1_000
    after = append_blocks(tmp_path / "f", 1_000, blocks(100))
    with SpillFile(tmp_path / "f") as file:
        assert file.read([*before, *after]) == blocks(10) + blocks(100)
