"""A store with little memory keeps its budget, and everything comes back in order."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from mrflight.ids import MapAttempt
from mrflight.shuffle.wire.tickets import PartitionSlice
from tests.support.clusters.spilling import BUDGET, FIRST, KIB, NAME, SECOND, Spilling, block, rows
from tests.support.commands.threads import run_threads


def test_the_budget_is_kept_and_everything_comes_back_in_order(spilling: Spilling) -> None:
    spilling.put(400)
    spilling.put(100, SECOND)
    stats = spilling.stats()
    assert stats.blocks == 500
    assert stats.size_bytes == 500 * 16 * KIB
    assert 0 < spilling.peak.bytes <= BUDGET
    assert stats.spilled_bytes == stats.spilled_blocks * 16 * KIB
    assert stats.spilled_bytes >= stats.size_bytes - BUDGET
    assert sum(path.stat().st_size for path in spilling.files()) == stats.spilled_bytes
    for partition in range(4):
        expected = [*range(partition, 400, 4), *range(partition, 100, 4)]
        assert rows(spilling.store.read(NAME, partition, [SECOND, FIRST])) == expected


def test_a_partition_partly_on_disk_is_read_in_order_of_the_maps(spilling: Spilling) -> None:
    for number in range(0, 200, 2):  # both maps at once, so that their blocks alternate
        spilling.store.put(NAME, 0, SECOND, block(number + 1))
        spilling.store.put(NAME, 0, FIRST, block(number))
    stats = spilling.stats()
    assert 0 < stats.spilled_blocks < stats.blocks
    assert rows(spilling.store.read(NAME, 0, [FIRST, SECOND])) == [
        *range(0, 200, 2),
        *range(1, 200, 2),
    ]


def test_slices_of_a_partition_partly_on_disk_are_the_partition(spilling: Spilling) -> None:
    for number in range(0, 200, 2):
        spilling.store.put(NAME, 0, SECOND, block(number + 1))
        spilling.store.put(NAME, 0, FIRST, block(number))
    spilling.store.put(NAME, 0, MapAttempt(0, 1), block(999))  # an attempt that is not committed
    assert 0 < spilling.stats().spilled_blocks < 201
    slices = [
        rows(spilling.store.read(NAME, 0, [FIRST, SECOND], PartitionSlice(number, 8)))
        for number in range(8)
    ]
    assert [len(share) for share in slices] == [25] * 8
    assert [each for share in slices for each in share] == [*range(0, 200, 2), *range(1, 200, 2)]


def test_blocks_that_are_spilled_during_a_read_are_read_from_disk(spilling: Spilling) -> None:
    spilling.put(40, partitions=1)
    assert spilling.stats().spilled_blocks == 0
    reading = spilling.store.read(NAME, 0, [FIRST])
    seen = [next(reading).rows]
    for number in range(200):
        spilling.store.put(NAME, 1, SECOND, block(number))
    for number in range(5):
        spilling.store.put(NAME, 0, FIRST, block(1_000 + number))
    assert spilling.stats().spilled_blocks > 40
    assert [*seen, *rows(reading)] == list(range(40)), "and nothing that came after the call"


def test_the_size_of_an_attempt_includes_blocks_on_disk(spilling: Spilling) -> None:
    spilling.put(200)
    spilling.put(100, SECOND)
    assert 0 < spilling.stats().spilled_blocks < 300
    sizes = [spilling.store.size_bytes(NAME, of, FIRST) for of in ([0], [1, 2], [3, 4], [])]
    assert sizes == [count * 16 * KIB for count in (50, 100, 50, 0)]
    assert spilling.store.size_bytes(NAME, range(4), SECOND) == 100 * 16 * KIB


@pytest.mark.slow
def test_two_thousand_partitions_of_small_blocks(spilling: Spilling) -> None:
    spilling.store.open("many", 2_000)
    for map_id in range(3):
        for partition in range(2_000):
            number = partition * 3 + map_id
            spilling.store.put("many", partition, MapAttempt(map_id, 0), block(number, 512))
    spilling.settle()
    assert 0 < spilling.peak.bytes <= BUDGET
    assert len(spilling.files()) > 1_000
    assert open_below(spilling.root) == 1, "the lock of the folder, and no file of a partition"
    attempts = [MapAttempt(map_id, 0) for map_id in range(3)]
    for partition in range(2_000):
        found = rows(spilling.store.read("many", partition, attempts))
        assert found == [partition * 3, partition * 3 + 1, partition * 3 + 2]


def open_below(folder: Path) -> int:
    """The number of open files below a folder; other threads of this process have others."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # one of those was closed meanwhile
            found += os.readlink(link).startswith(f"{folder}/")
    return found


def test_many_writers_and_readers_at_once(spilling: Spilling) -> None:
    def write_and_read(map_id: int) -> None:
        source = MapAttempt(map_id, 0)
        for number in range(300):
            spilling.store.put(NAME, number % 3, source, block(number, 8 * KIB))
            if number % 50 == 49:
                assert rows(spilling.store.read(NAME, 0, [source])) == [*range(0, number + 1, 3)]

    run_threads(partial(write_and_read, map_id) for map_id in range(6))
    spilling.settle()
    assert 0 < spilling.peak.bytes <= BUDGET
    attempts = [MapAttempt(map_id, 0) for map_id in range(6)]
    for partition in range(3):
        found = rows(spilling.store.read(NAME, partition, attempts))
        assert found == [*range(partition, 300, 3)] * 6


def test_a_block_larger_than_the_budget_is_accepted(tmp_path: Path) -> None:
    spilling = Spilling(tmp_path, memory=10 * KIB)
    for number in range(3):
        spilling.store.put(NAME, 0, FIRST, block(number, 700 * KIB))
    assert rows(spilling.store.read(NAME, 0, [FIRST])) == [0, 1, 2]
    spilling.close()


def test_without_memory_everything_goes_through_the_disk(tmp_path: Path) -> None:
    spilling = Spilling(tmp_path, memory=0)
    spilling.put(20)
    assert rows(spilling.store.read(NAME, 1, [FIRST])) == [1, 5, 9, 13, 17]
    spilling.close()
