"""A drop or discard while a store spills leaves no files, and readers get an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mrflight.errors import IncompletePartitionError, MrflightError, ShuffleNotFoundError
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.system.scratch import ScratchFolder
from tests.support.clusters.spilling import BUDGET, FIRST, KIB, NAME, SECOND, Spilling, block, rows


def test_drop_removes_every_file(spilling: Spilling) -> None:
    spilling.store.open("other", 4)
    for number in range(200):
        spilling.store.put("other", number % 4, FIRST, block(number))
    spilling.put(200)
    assert {path.parent.name for path in spilling.files()} == {f"0-{NAME}", "1-other"}
    spilling.store.drop(NAME)
    assert {path.parent.name for path in spilling.files()} == {"1-other"}
    spilling.store.drop("other")
    assert sorted(path.name for path in spilling.scratch.path.iterdir()) == ["lock"]
    stats = spilling.stats()
    assert (stats.blocks, stats.memory_bytes, stats.spilled_bytes) == (0, 0, 0)


def test_drops_while_it_is_being_written_leave_nothing(spilling: Spilling) -> None:
    for number in range(30):
        name = f"s{number}"
        spilling.store.open(name, 4)
        for each in range(80 + number):  # the last puts start spilling, or follow it
            spilling.store.put(name, each % 4, FIRST, block(each))
        spilling.store.drop(name)
        assert spilling.files() == []
    assert spilling.stats().memory_bytes == 0
    assert sorted(path.name for path in spilling.scratch.path.iterdir()) == ["lock"]


def test_a_shuffle_of_the_same_name_has_other_files(spilling: Spilling) -> None:
    spilling.put(200)
    spilling.store.drop(NAME)
    spilling.store.open(NAME, 4)
    for number in range(200):
        spilling.store.put(NAME, 0, FIRST, block(1_000 + number))
    assert rows(spilling.store.read(NAME, 0, [FIRST])) == [*range(1_000, 1_200)]


def test_a_discarded_attempt_is_dead_space_on_disk(spilling: Spilling) -> None:
    spilling.put(200, FIRST)
    spilling.put(100, SECOND)
    before = spilling.stats()
    spilling.store.discard(NAME, FIRST)
    after = spilling.stats()
    assert (after.blocks, after.size_bytes) == (100, 100 * 16 * KIB)
    assert after.dead_bytes == before.spilled_bytes - after.spilled_bytes > 0
    assert list(spilling.store.read(NAME, 0, [FIRST])) == []
    assert rows(spilling.store.read(NAME, 0, [SECOND])) == [*range(0, 100, 4)]
    spilling.put(200, FIRST)  # again, as a writer without a writer id may
    assert rows(spilling.store.read(NAME, 0, [FIRST])) == [*range(0, 200, 4)]
    spilling.store.drop(NAME)
    assert spilling.stats().dead_bytes == 0


def test_a_discarded_block_that_spilling_skips_belongs_to_no_attempt(tmp_path: Path) -> None:
    with ScratchFolder("test", tmp_path) as scratch, BlockStore(BUDGET, scratch) as store:
        store.open(NAME, 1)
        store.put(NAME, 0, FIRST, block(1))
        store.put(NAME, 0, SECOND, block(2))
        store.discard(NAME, SECOND)
        for number in range(3, 150):
            store.put(NAME, 0, FIRST, block(number))
        assert store.stats().spilled_blocks > 2
        assert rows(store.read(NAME, 0, [FIRST])) == [1, *range(3, 150)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda store: store.drop(NAME), ShuffleNotFoundError),
        (lambda store: store.discard(NAME, FIRST), IncompletePartitionError),
    ],
)
def test_a_reader_learns_what_is_removed_while_it_reads(
    spilling: Spilling, change: Callable[[BlockStore], None], error: type[MrflightError]
) -> None:
    spilling.put(400, partitions=1)
    reading = spilling.store.read(NAME, 0, [FIRST])
    next(reading)
    change(spilling.store)
    with pytest.raises(error, match="while"):
        list(reading)


def test_a_reader_closes_its_file(spilling: Spilling) -> None:
    spilling.put(400, partitions=1)
    spilling.settle()
    reading = spilling.store.read(NAME, 0, [FIRST])
    next(reading)
    assert len(open_spill_files(spilling)) == 1
    del reading
    assert open_spill_files(spilling) == []


def open_spill_files(spilling: Spilling) -> list[str]:
    """Return the spill files that this process has open."""
    spilled = {str(path) for path in spilling.files()}
    return [file.path for file in psutil.Process().open_files() if file.path in spilled]
