"""A store with little memory: it holds no more, loses nothing, and nobody waits for ever."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import (
    AttemptLostError,
    CorruptBlockError,
    DeadlineExceededError,
    IncompletePartitionError,
    MrflightError,
    ServerUnavailableError,
    ShuffleNotFoundError,
    SpillError,
)
from mrflight.ids import MapAttempt
from mrflight.scratch import ScratchFolder
from mrflight.shuffle.block import Block, decode_block
from mrflight.shuffle.share import Share
from mrflight.shuffle.store import BlockStore, StoreStats
from tests.support.threads import run_threads

KIB = 2**10
BUDGET = 1_000 * KIB
NAME = "clicks"
FIRST, SECOND = MapAttempt(0, 0), MapAttempt(1, 0)


def block(number: int, size: int = 16 * KIB) -> Block:
    """A block like no other: ``number`` is its rows, and in all of its bytes."""
    return Block.of(number, pa.py_buffer(number.to_bytes(8, "little") * (size // 8)))


def rows(blocks: Iterator[Block]) -> list[int]:
    """The numbers of blocks, each of which must be as it was put, with the hash of its bytes."""
    found = []
    for each in blocks:
        assert each == block(each.rows, each.body.size)
        found.append(each.rows)
    return found


class Spilling:
    """A store and the folder below which it spills."""

    def __init__(self, root: Path, memory: int = BUDGET, put_timeout_s: float = 60.0) -> None:
        self.root = root
        self.scratch = ScratchFolder("test", root)
        self.store = BlockStore(memory, self.scratch, put_timeout_s)
        self.store.open(NAME, 2_000)

    def put(self, count: int, source: MapAttempt = FIRST, partitions: int = 4) -> None:
        for number in range(count):
            self.store.put(NAME, number % partitions, source, block(number))

    def files(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.suffix == ".blocks"]

    def settle(self) -> None:
        """Return when nothing is being written, nor will be."""
        store = self.store
        with store._changed:
            assert store._changed.wait_for(
                lambda: store._spiller.idle and not store._budget.excess_bytes, 10
            )

    def stats(self) -> StoreStats:
        """When nothing is being written."""
        self.settle()
        return self.store.stats()

    def break_disk(self) -> None:
        """Nothing can be written: a file is where the shuffle's folder must be."""
        (self.scratch.path / f"0-{NAME}").write_text("in the way")

    def mend_disk(self) -> None:
        (self.scratch.path / f"0-{NAME}").unlink()

    def close(self) -> None:
        self.store.close()
        self.scratch.close()


@pytest.fixture
def spilling(tmp_path: Path) -> Iterator[Spilling]:
    made = Spilling(tmp_path)
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


class Put:
    """A put in a thread; once made it is known to wait for memory."""

    def __init__(self, store: BlockStore, source: MapAttempt, size: int) -> None:
        self.error: MrflightError | None = None
        waits = store._budget._waits
        before = len(waits)

        def run() -> None:
            try:
                store.put(NAME, 0, source, block(7, size))
            except MrflightError as error:
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()
        with store._changed:
            assert store._changed.wait_for(lambda: len(waits) > before, 10)

    def join(self) -> MrflightError | None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Spilling]:
    """A store that is full, and whose spilling does not get on: nobody is there to do it."""
    made = Spilling(tmp_path)
    made.store._spiller.start = lambda: None  # type: ignore[method-assign]
    made.put(55)
    yield made
    made.close()


def test_the_budget_is_kept_and_everything_comes_back_in_order(spilling: Spilling) -> None:
    spilling.put(400)
    spilling.put(100, SECOND)
    stats = spilling.stats()
    assert stats.blocks == 500
    assert stats.size_bytes == 500 * 16 * KIB
    assert stats.memory_peak_bytes <= BUDGET
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


def test_shares_of_a_partition_partly_on_disk_are_the_partition(spilling: Spilling) -> None:
    for number in range(0, 200, 2):
        spilling.store.put(NAME, 0, SECOND, block(number + 1))
        spilling.store.put(NAME, 0, FIRST, block(number))
    spilling.store.put(NAME, 0, MapAttempt(0, 1), block(999))  # of an attempt that did not win
    assert 0 < spilling.stats().spilled_blocks < 201
    shares = [
        rows(spilling.store.read(NAME, 0, [FIRST, SECOND], Share(number, 8))) for number in range(8)
    ]
    assert [len(share) for share in shares] == [25] * 8
    assert [each for share in shares for each in share] == [*range(0, 200, 2), *range(1, 200, 2)]


def test_what_is_spilled_while_it_is_read_is_read_from_disk(spilling: Spilling) -> None:
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


def test_two_thousand_partitions_of_small_blocks(spilling: Spilling) -> None:
    spilling.store.open("many", 2_000)
    for map_id in range(3):
        for partition in range(2_000):
            number = partition * 3 + map_id
            spilling.store.put("many", partition, MapAttempt(map_id, 0), block(number, 512))
    stats = spilling.stats()
    assert stats.memory_peak_bytes <= BUDGET
    assert len(spilling.files()) > 1_000
    assert len(os.listdir("/proc/self/fd")) < 200
    attempts = [MapAttempt(map_id, 0) for map_id in range(3)]
    for partition in range(2_000):
        found = rows(spilling.store.read("many", partition, attempts))
        assert found == [partition * 3, partition * 3 + 1, partition * 3 + 2]


def test_many_writers_and_readers_at_once(spilling: Spilling) -> None:
    def write_and_read(map_id: int) -> None:
        source = MapAttempt(map_id, 0)
        for number in range(300):
            spilling.store.put(NAME, number % 3, source, block(number, 8 * KIB))
            if number % 50 == 49:
                assert rows(spilling.store.read(NAME, 0, [source])) == [*range(0, number + 1, 3)]

    run_threads(partial(write_and_read, map_id) for map_id in range(6))
    assert spilling.stats().memory_peak_bytes <= BUDGET
    attempts = [MapAttempt(map_id, 0) for map_id in range(6)]
    for partition in range(3):
        found = rows(spilling.store.read(NAME, partition, attempts))
        assert found == [*range(partition, 300, 3)] * 6


def test_a_block_larger_than_the_budget_is_taken(tmp_path: Path) -> None:
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
        for each in range(80 + number):  # the last puts begin or follow the spilling
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
    spilling.put(200, FIRST)  # again, as a writer without an id of its own may
    assert rows(spilling.store.read(NAME, 0, [FIRST])) == [*range(0, 200, 4)]
    spilling.store.drop(NAME)
    assert spilling.stats().dead_bytes == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda store: store.drop(NAME), ShuffleNotFoundError),
        (lambda store: store.discard(NAME, FIRST), IncompletePartitionError),
    ],
)
def test_what_goes_away_while_it_is_read_is_told(
    spilling: Spilling, change: Callable[[BlockStore], None], error: type[MrflightError]
) -> None:
    spilling.put(400, partitions=1)
    reading = spilling.store.read(NAME, 0, [FIRST])
    next(reading)
    change(spilling.store)
    with pytest.raises(error, match="while"):
        list(reading)


def test_a_reader_lets_go_of_its_file(spilling: Spilling) -> None:
    spilling.put(400, partitions=1)
    spilling.settle()
    before = len(os.listdir("/proc/self/fd"))
    reading = spilling.store.read(NAME, 0, [FIRST])
    next(reading)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del reading
    assert len(os.listdir("/proc/self/fd")) == before


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
    with pytest.raises(SpillError, match=r"cannot spill partition . of shuffle 'clicks' below"):
        spilling.put(400)
    stats = spilling.stats()
    assert stats.memory_peak_bytes <= BUDGET
    assert stats.spilled_blocks == 0
    kept = [n for p in range(4) for n in rows(spilling.store.read(NAME, p, [FIRST]))]
    assert sorted(kept) == list(range(stats.blocks)), "what was taken before is still here"
    spilling.mend_disk()
    spilling.put(400, SECOND)
    assert rows(spilling.store.read(NAME, 3, [SECOND])) == [*range(3, 400, 4)]


def test_a_spill_folder_that_is_gone_is_told(spilling: Spilling) -> None:
    spilling.put(200, partitions=1)
    spilling.settle()
    shutil.rmtree(spilling.files()[0].parent)
    with pytest.raises(SpillError, match="No such file"):
        list(spilling.store.read(NAME, 0, [FIRST]))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda store: store.drop(NAME), ShuffleNotFoundError),
        (lambda store: store.discard(NAME, SECOND), AttemptLostError),
        (lambda store: store.close(), ServerUnavailableError),
    ],
)
def test_what_ends_a_put_that_waits(
    stuck: Spilling, change: Callable[[BlockStore], None], error: type[MrflightError]
) -> None:
    put = Put(stuck.store, SECOND, 100 * KIB)
    change(stuck.store)
    assert isinstance(put.join(), error)


@pytest.mark.parametrize(
    "change", [lambda store: store.drop("other"), lambda store: store.discard(NAME, FIRST)]
)
def test_what_is_given_back_lets_a_put_go_on(
    stuck: Spilling, change: Callable[[BlockStore], None]
) -> None:
    stuck.store.discard(NAME, FIRST)
    stuck.store.open("other", 1)
    for number in range(27):
        stuck.store.put("other", 0, FIRST, block(number))
        stuck.store.put(NAME, 0, FIRST, block(number))
    put = Put(stuck.store, SECOND, 100 * KIB)
    change(stuck.store)
    assert put.join() is None
    assert rows(stuck.store.read(NAME, 0, [SECOND])) == [7]


def test_a_put_does_not_wait_for_ever(tmp_path: Path) -> None:
    spilling = Spilling(tmp_path, put_timeout_s=0.05)
    spilling.store._spiller.start = lambda: None  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceededError, match="found no memory"):
        spilling.put(100)
    spilling.close()


def test_a_discarded_block_that_was_passed_over_in_spilling_is_nobodys(tmp_path: Path) -> None:
    with ScratchFolder("test", tmp_path) as scratch, BlockStore(BUDGET, scratch) as store:
        store.open(NAME, 1)
        store.put(NAME, 0, FIRST, block(1))
        store.put(NAME, 0, SECOND, block(2))
        store.discard(NAME, SECOND)
        for number in range(3, 150):
            store.put(NAME, 0, FIRST, block(number))
        assert store.stats().spilled_blocks > 2
        assert rows(store.read(NAME, 0, [FIRST])) == [1, *range(3, 150)]
