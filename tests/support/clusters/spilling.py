"""A store with little memory, and distinct blocks to put into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from mrflight.ids import MapAttempt
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.store.memory_budget import MemoryBudget
from mrflight.shuffle.wire.block import Block
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.system.scratch import ScratchFolder
from tests.support.suite.waiting import hang_s

KIB = 2**10
BUDGET = 1_000 * KIB
NAME = "clicks"
FIRST, SECOND = MapAttempt(0, 0), MapAttempt(1, 0)


def block(number: int, size: int = 16 * KIB) -> Block:
    """Return a distinct block: ``number`` is the number of its rows, and in all of its bytes."""
    return Block.of(number, pa.py_buffer(number.to_bytes(8, "little") * (size // 8)))


def rows(blocks: Iterator[Block]) -> list[int]:
    """Return the numbers of blocks, after checking that their bytes and hashes have not changed."""
    found = []
    for each in blocks:
        assert each == block(each.rows, each.body.size)
        found.append(each.rows)
    return found


class Peak:
    """Record the maximum that a budget holds, each time that a put is admitted."""

    def __init__(self, budget: MemoryBudget[Any]) -> None:
        self.bytes = 0
        take = budget.take

        def noted(size: int, owner: Any, timeout_s: float) -> None:
            take(size, owner, timeout_s)
            self.bytes = max(self.bytes, budget.held_bytes)

        budget.take = noted  # type: ignore[method-assign]


class Spilling:
    """A store and the folder below which it spills."""

    def __init__(self, root: Path, memory: int = BUDGET, put_timeout_s: float = 60.0) -> None:
        self.root = root
        self.scratch = ScratchFolder("test", root)
        self.store = BlockStore(memory, self.scratch, put_timeout_s)
        self.peak = Peak(self.store._budget)
        self.store.open(NAME, 2_000)

    def put(self, count: int, source: MapAttempt = FIRST, partitions: int = 4) -> None:
        for number in range(count):
            self.store.put(NAME, number % partitions, source, block(number))

    def files(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.suffix == ".blocks"]

    def settle(self) -> None:
        """Return when nothing is being written or about to be."""
        store = self.store
        with store._changed:
            assert store._changed.wait_for(
                lambda: store._spiller.idle and not store._budget.excess_bytes, hang_s()
            )

    def stats(self) -> ServerStats:
        """Run the block while nothing is being written."""
        self.settle()
        return self.store.stats()

    def break_disk(self) -> None:
        """Make writes fail: put a file where the shuffle's folder must be."""
        (self.scratch.path / f"0-{NAME}").write_text("in the way")

    def mend_disk(self) -> None:
        (self.scratch.path / f"0-{NAME}").unlink()

    def close(self) -> None:
        self.store.close()
        self.scratch.close()
