"""A store holds what was put and nothing else, and its counters are always right."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mrflight.errors import CorruptBlockError, ProtocolError, ShuffleNotFoundError
from mrflight.ids import MapAttempt
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.wire.block import (
    PACKED_BYTES,
    Block,
    SharedBlock,
    decode_block,
    encode_block,
    ipc_options,
)
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.system.scratch import ScratchFolder
from tests.support.clusters.spilling import Peak
from tests.support.commands.threads import run_threads
from tests.support.suite.examples import some_of

PARTITIONS = 3
BUDGET = 10_000
"""Enough for a small block in each of two partitions, which both have a page of their own."""


def block(size: int = 8, rows: int = 1) -> Block:
    return Block.of(rows, pa.py_buffer(bytes(size)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    """A store that never spills."""
    with ScratchFolder("test", tmp_path) as scratch, BlockStore(2**30, scratch) as opened:
        opened.open("clicks", PARTITIONS)
        yield opened
        assert list(tmp_path.iterdir()) == []


def held(stats: ServerStats) -> tuple[int, int, int]:
    return stats.shuffles, stats.blocks, stats.size_bytes


def test_blocks_are_read_by_map_and_each_maps_as_they_were_put(store: BlockStore) -> None:
    late, early = MapAttempt(9, 0), MapAttempt(2, 1)
    blocks = [block(rows=rows) for rows in range(4)]
    for source, put in zip([late, early, late, early], blocks, strict=True):
        store.put("clicks", 1, source, put)
    expected = [blocks[1], blocks[3], blocks[0], blocks[2]]
    assert list(store.read("clicks", 1, [late, early])) == expected


def test_only_the_requested_attempts_are_read(store: BlockStore) -> None:
    store.put("clicks", 1, MapAttempt(0, 0), block(rows=1))
    store.put("clicks", 1, MapAttempt(0, 1), block(rows=2))
    assert [b.rows for b in store.read("clicks", 1, [MapAttempt(0, 1)])] == [2]
    assert list(store.read("clicks", 0, [MapAttempt(0, 1)])) == []
    assert list(store.read("clicks", 1, [MapAttempt(5, 0)])) == []


def test_a_large_block_is_not_copied(store: BlockStore) -> None:
    put = block(PACKED_BYTES + 1)
    store.put("clicks", 0, MapAttempt(0, 0), put)
    (kept,) = store.read("clicks", 0, [MapAttempt(0, 0)])
    assert kept.body.address == put.body.address


def _flip(block: Block, position: int) -> None:
    """Flip a bit of a block where it is: in pages of shared memory, or of this process."""
    if not isinstance(block, SharedBlock):
        changing = ctypes.c_uint8.from_address(block.body.address + position)
        changing.value ^= 0x10
        return
    file, at = block.segment.file, block.offset + position
    (value,) = os.pread(file, 1, at)
    os.pwrite(file, bytes([value ^ 0x10]), at)


@pytest.mark.parametrize("rows", [10, PACKED_BYTES])  # one is copied, the other is not
def test_a_bit_that_changes_in_memory_is_found_when_decoding(store: BlockStore, rows: int) -> None:
    source = MapAttempt(0, 0)
    put = encode_block([pa.record_batch({"n": range(rows)})], ipc_options("none"))
    store.put("clicks", 0, source, put)
    (kept,) = store.read("clicks", 0, [source])
    assert (kept.body.address == put.body.address) == (put.body.size > PACKED_BYTES)
    change = partial(_flip, kept, put.body.size // 2)
    change()
    (corrupt,) = store.read("clicks", 0, [source])
    with pytest.raises(CorruptBlockError, match=f"{put.xxh3:016x} were written"):
        decode_block(corrupt)
    change()
    assert decode_block(corrupt).column("n").to_pylist() == list(range(rows))


@pytest.mark.parametrize("partition", [-1, PARTITIONS])
def test_a_partition_that_does_not_exist_is_refused(store: BlockStore, partition: int) -> None:
    with pytest.raises(ProtocolError, match="has no partition"):
        store.put("clicks", partition, MapAttempt(0, 0), block())
    with pytest.raises(ProtocolError, match="has no partition"):
        store.read("clicks", partition, [])


def test_a_shuffle_that_is_not_open_is_refused(store: BlockStore) -> None:
    with pytest.raises(ShuffleNotFoundError, match="'other'"):
        store.put("other", 0, MapAttempt(0, 0), block())
    with pytest.raises(ShuffleNotFoundError, match="'other'"):
        store.read("other", 0, [])


def test_dropping_what_does_not_exist_does_nothing(store: BlockStore) -> None:
    store.discard("other", MapAttempt(0, 0))
    store.drop("other")
    store.discard("clicks", MapAttempt(0, 0))
    assert held(store.stats()) == (1, 0, 0)


def test_opening_again_keeps_the_blocks(store: BlockStore) -> None:
    store.put("clicks", 0, MapAttempt(0, 0), block())
    store.open("clicks", PARTITIONS)
    assert len(list(store.read("clicks", 0, [MapAttempt(0, 0)]))) == 1


def test_a_block_that_comes_after_the_drop_is_refused(store: BlockStore) -> None:
    store.drop("clicks")
    assert not store.is_open("clicks")
    with pytest.raises(ShuffleNotFoundError):
        store.put("clicks", 0, MapAttempt(0, 0), block())
    assert held(store.stats()) == (0, 0, 0)


def test_memory_is_given_back(store: BlockStore) -> None:
    memory = pa.proxy_memory_pool(pa.default_memory_pool())
    for attempt in range(2):
        for _ in range(10):
            body = pa.allocate_buffer(1_000_000, memory)
            store.put("clicks", 0, MapAttempt(0, attempt), Block.of(1, body))
    del body
    assert memory.bytes_allocated() == 20_000_000
    store.discard("clicks", MapAttempt(0, 0))
    assert memory.bytes_allocated() == 10_000_000
    store.drop("clicks")
    assert memory.bytes_allocated() == 0


def test_small_blocks_free_the_buffer_that_they_came_in(store: BlockStore) -> None:
    memory = pa.proxy_memory_pool(pa.default_memory_pool())
    received = pa.allocate_buffer(1_000_000, memory)
    store.put("clicks", 0, MapAttempt(0, 0), Block.of(1, received.slice(1_000, 16)))
    del received
    assert memory.bytes_allocated() == 0


FILL_AND_EMPTY = """
import sys
from pathlib import Path
import psutil
import pyarrow as pa
from mrflight.ids import MapAttempt
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.wire.block import Block
from mrflight.system.scratch import ScratchFolder

PARTITIONS = 3
scratch = ScratchFolder("test", Path(sys.argv[1]))
store = BlockStore(2**30, scratch)
store.open("clicks", PARTITIONS)
body = pa.py_buffer(bytes(16 * 1024))
for attempt in range(2):
    for partition in range(PARTITIONS):
        for _ in range(1_000):
            store.put("clicks", partition, MapAttempt(0, attempt), Block.of(1, body))
each = PARTITIONS * 1_000 * body.size
full = psutil.Process().memory_info().rss
assert 2 * each <= store.stats().memory_bytes < 2.2 * each
store.discard("clicks", MapAttempt(0, 0))
assert store.stats().memory_bytes < 2.2 * each, "what shares pages counts until they go"
store.discard("clicks", MapAttempt(0, 1))
assert store.stats().memory_bytes == 0
assert full - psutil.Process().memory_info().rss >= 1.3 * each
store.close()
scratch.close()
"""


def test_memory_of_small_blocks_goes_back_to_the_system(tmp_path: Path) -> None:
    """It is that of a process which has nothing else."""
    command = [sys.executable, "-c", FILL_AND_EMPTY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_many_threads_lose_nothing(store: BlockStore) -> None:
    def put_all(map_id: int) -> None:
        for i in range(200):
            store.put("clicks", i % PARTITIONS, MapAttempt(map_id, 0), block(size=map_id))
        store.discard("clicks", MapAttempt(map_id, 0)) if map_id % 2 else None

    run_threads(partial(put_all, map_id) for map_id in range(8))
    kept = [0, 2, 4, 6]
    assert held(store.stats()) == (1, 200 * len(kept), 200 * sum(kept))


names = st.sampled_from(["a", "b"])
partitions = st.integers(0, PARTITIONS - 1)
sources = st.builds(MapAttempt, st.integers(0, 2), st.integers(0, 1), st.sampled_from(["", "a1"]))


class StoreMachine(RuleBasedStateMachine):
    """Compares a store with little memory with a dictionary of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.scratch = ScratchFolder("test", self.root)
        self.store = BlockStore(BUDGET, self.scratch)
        self.peak = Peak(self.store._budget)
        self.model: dict[str, dict[tuple[int, MapAttempt], list[Block]]] = {}
        self.puts = 0

    @rule(name=names)
    def open(self, name: str) -> None:
        self.store.open(name, PARTITIONS)
        self.model.setdefault(name, {})

    @rule(name=names, partition=partitions, source=sources, size=st.integers(0, 50))
    def put(self, name: str, partition: int, source: MapAttempt, size: int) -> None:
        self.puts += 1  # no two blocks have the same bytes, nor the same rows
        put = Block.of(self.puts, pa.py_buffer(self.puts.to_bytes(4, "little") * size))
        if name not in self.model:
            with pytest.raises(ShuffleNotFoundError):
                self.store.put(name, partition, source, put)
            return
        self.store.put(name, partition, source, put)
        self.model[name].setdefault((partition, source), []).append(put)

    @rule(name=names, partition=partitions, attempts=st.lists(sources, unique=True))
    def read(self, name: str, partition: int, attempts: list[MapAttempt]) -> None:
        if name not in self.model:
            with pytest.raises(ShuffleNotFoundError):
                self.store.read(name, partition, attempts)
            return
        held = self.model[name]
        expected = [b for source in sorted(attempts) for b in held.get((partition, source), [])]
        assert list(self.store.read(name, partition, attempts)) == expected

    @rule(name=names, source=sources)
    def discard(self, name: str, source: MapAttempt) -> None:
        self.store.discard(name, source)
        for place in [place for place in self.model.get(name, {}) if place[1] == source]:
            del self.model[name][place]

    @rule(name=names)
    def drop(self, name: str) -> None:
        self.store.drop(name)
        self.model.pop(name, None)

    @invariant()
    def counters_are_exact(self) -> None:
        blocks = [b for held in self.model.values() for put in held.values() for b in put]
        stats = self.store.stats()
        expected = (len(self.model), len(blocks), sum(b.body.size for b in blocks))
        assert held(stats) == expected
        assert self.peak.bytes <= BUDGET
        assert sorted(self.store.shuffles()) == sorted(self.model)
        assert all(self.store.is_open(name) == (name in self.model) for name in "ab")

    def teardown(self) -> None:
        for name in list(self.model):
            self.store.drop(name)
        stats = self.store.stats()
        assert held(stats) == (0, 0, 0)
        assert (stats.memory_bytes, stats.spilled_bytes, stats.dead_bytes) == (0, 0, 0)
        self.store.close()
        self.scratch.close()
        self.root.rmdir()  # it must be empty


TestAnyHistory = StoreMachine.TestCase
TestAnyHistory.settings = settings(
    max_examples=some_of(60), stateful_step_count=40, derandomize=True
)
