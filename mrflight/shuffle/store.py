"""The blocks that a data server holds. Knows nothing of sockets or messages."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from mrflight.errors import ProtocolError, ShuffleNotFoundError
from mrflight.ids import MapAttempt
from mrflight.shuffle.block import Block


@dataclass
class _StoredShuffle:
    partitions: int
    blocks: dict[int, dict[MapAttempt, list[Block]]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreStats:
    """What a store holds."""

    shuffles: int
    blocks: int
    size_bytes: int


class BlockStore:
    """Blocks by shuffle, partition and map attempt, in memory. Safe for many threads.

    A shuffle is opened before its first block and gone after `drop`: a block
    that comes late finds no shuffle, and nothing of a dropped one is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shuffles: dict[str, _StoredShuffle] = {}
        self._block_count = 0
        self._stored_bytes = 0

    def open(self, shuffle_id: str, partitions: int) -> None:
        """Make room for a shuffle; nothing happens where it is open."""
        with self._lock:
            self._shuffles.setdefault(shuffle_id, _StoredShuffle(partitions))

    def is_open(self, shuffle_id: str) -> bool:
        return shuffle_id in self._shuffles

    def put(self, shuffle_id: str, partition: int, source: MapAttempt, block: Block) -> None:
        """Keep a block, behind those that this attempt put there before."""
        with self._lock:
            stored = self._opened(shuffle_id, partition)
            stored.blocks.setdefault(partition, {}).setdefault(source, []).append(block)
            self._block_count += 1
            self._stored_bytes += block.body.size

    def read(self, shuffle_id: str, partition: int, attempts: Iterable[MapAttempt]) -> list[Block]:
        """The blocks of these attempts in order of their map ids, each map's as they were put.

        Maps are numbered in the order of the input, so a partition's rows come
        back in input order whatever the order of the commits.
        """
        with self._lock:
            held = self._opened(shuffle_id, partition).blocks.get(partition, {})
            return [block for attempt in sorted(attempts) for block in held.get(attempt, ())]

    def discard(self, shuffle_id: str, source: MapAttempt) -> None:
        """Forget what an attempt put; nothing happens where there is nothing."""
        with self._lock:
            stored = self._shuffles.get(shuffle_id)
            for held in stored.blocks.values() if stored else ():
                self._uncount(held.pop(source, ()))

    def drop(self, shuffle_id: str) -> None:
        """Forget a shuffle; nothing happens where it is not open."""
        with self._lock:
            stored = self._shuffles.pop(shuffle_id, None)
            for held in stored.blocks.values() if stored else ():
                for blocks in held.values():
                    self._uncount(blocks)

    def shuffles(self) -> list[str]:
        """The ids of the open shuffles."""
        with self._lock:
            return list(self._shuffles)

    def stats(self) -> StoreStats:
        with self._lock:
            return StoreStats(len(self._shuffles), self._block_count, self._stored_bytes)

    def _opened(self, shuffle_id: str, partition: int) -> _StoredShuffle:
        stored = self._shuffles.get(shuffle_id)
        if stored is None:
            raise ShuffleNotFoundError(
                f"shuffle {shuffle_id!r} is not here: never made, or dropped"
            )
        if not 0 <= partition < stored.partitions:
            raise ProtocolError(
                f"shuffle {shuffle_id!r} has no partition {partition}, only {stored.partitions}"
            )
        return stored

    def _uncount(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._block_count -= 1
            self._stored_bytes -= block.body.size
