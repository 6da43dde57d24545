"""The blocks that a data server holds. This module knows no sockets or messages."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from mrflight.errors import (
    AttemptSupersededError,
    ProtocolError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.ids import MapAttempt, same_token
from mrflight.shuffle.store.decode_memory import DecodeMemory
from mrflight.shuffle.store.memory_budget import MemoryBudget
from mrflight.shuffle.store.partition_reader import PartitionReader
from mrflight.shuffle.store.spiller import Spiller
from mrflight.shuffle.store.store_totals import StoreTotals
from mrflight.shuffle.store.stored_shuffle import StoredShuffle
from mrflight.shuffle.wire.block import Block
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.system.closeable import Closeable
from mrflight.system.scratch import ScratchFolder

PUT_TIMEOUT_S = 120.0
"""The timeout of a put that waits for memory. A slow disk writes 2 GiB in that time."""


class BlockStore(Closeable):
    """Blocks by shuffle, partition and map attempt. Safe for many threads.

    A shuffle is opened before its first block and removed by `drop`. A block that arrives
    after that is refused, so that nothing of a dropped shuffle is left.

    At most ``memory_bytes`` are held, or one block that is larger. Beyond a part of that, a thread
    spills the coldest partitions below ``scratch``, which the caller closes. `close` ends the
    thread.
    """

    def __init__(
        self, memory_bytes: int, scratch: ScratchFolder, put_timeout_s: float = PUT_TIMEOUT_S
    ) -> None:
        self._put_timeout_s = put_timeout_s
        self._changed = threading.Condition(threading.Lock())
        self._shuffles: dict[str, StoredShuffle] = {}
        self._totals = StoreTotals()
        self._serials = itertools.count()
        self._clock: Callable[[], int] = itertools.count().__next__
        self._budget = MemoryBudget[tuple[StoredShuffle, MapAttempt]](
            memory_bytes, self._changed, self._totals
        )
        self.decoded = DecodeMemory(memory_bytes, self.count_other_bytes)
        """For rows of its blocks, which count against the budget as well."""
        self._spiller = Spiller(
            self._changed, self._budget, self._shuffles.values, scratch, self._totals
        )

    def open(self, shuffle_id: str, partitions: int, token: str = "") -> None:
        """Open a shuffle; do nothing if one of this name is open."""
        with self._changed:
            if shuffle_id not in self._shuffles:
                shuffle = StoredShuffle(shuffle_id, next(self._serials), partitions, token)
                self._shuffles[shuffle_id] = shuffle

    def is_open(self, shuffle_id: str) -> bool:
        return shuffle_id in self._shuffles

    def token(self, shuffle_id: str) -> str | None:
        """Return the token of the open shuffle of this name; None if none is open."""
        shuffle = self._shuffles.get(shuffle_id)
        return None if shuffle is None else shuffle.token

    def has(self, shuffle_id: str, token: str) -> bool:
        """Return whether a shuffle is open; with a token, whether it is the one that has it."""
        found = self.token(shuffle_id)
        return found is not None and (not token or same_token(token, found))

    def put(self, shuffle_id: str, partition: int, source: MapAttempt, block: Block) -> None:
        """Store a block after those that this attempt has put into the partition before.

        Waits while memory is short. Raises ShuffleNotFoundError or AttemptSupersededError if the
        shuffle is dropped or the attempt discarded meanwhile, SpillError if spilling fails,
        DeadlineExceededError, and ServerUnavailableError if the store is closed.
        """
        with self._changed:
            shuffle = self._shuffle_of(shuffle_id, partition)
            size = shuffle.partition(partition).held_bytes(block.body.size)
            if self._budget.is_short(size):
                self._spiller.start()
            self._budget.take(size, (shuffle, source), self._put_timeout_s)
            try:
                shuffle.put(partition, source, block, size)
            except BaseException:
                self._budget.give_back(size)  # for example, the system has no pages left
                raise
            shuffle.partition(partition).touched = self._clock()
            self._totals.put_blocks += 1
            self._totals.put_bytes += block.body.size

    def read(
        self,
        shuffle_id: str,
        partition: int,
        attempts: Iterable[MapAttempt],
        partition_slice: PartitionSlice | None = None,
    ) -> Iterator[Block]:
        """Yield the blocks of these attempts in order of their map ids, each map's as put.

        With a slice, yields only its blocks. Maps are numbered in the order of the input, so a
        partition's rows come back in input order, whatever the order of the commits. The blocks are
        those that are here now, and each is fetched as it is needed; see `PartitionReader.blocks`
        for the errors.
        """
        with self._changed:
            shuffle = self._shuffle_of(shuffle_id, partition)
            held = shuffle.partition(partition)
            order = shuffle.reading_order(held, attempts, partition_slice)
        reader = PartitionReader(self._changed, shuffle, held, order, self._clock, self._totals)
        return reader.blocks()

    def size_bytes(self, shuffle_id: str, partitions: Iterable[int], source: MapAttempt) -> int:
        """Return the bytes of the blocks that an attempt put into some partitions."""
        with self._changed:
            found = 0
            for partition in partitions:
                held = self._shuffle_of(shuffle_id, partition).partition(partition)
                order = self._shuffles[shuffle_id].reading_order(held, [source])
                found += sum(held.size_at(position) for position, _ in order)
            return found

    def discard(self, shuffle_id: str, source: MapAttempt) -> None:
        """Discard the blocks of an attempt, if it has any.

        Blocks on disk take space until the shuffle is dropped.
        """
        with self._changed:
            shuffle = self._shuffles.get(shuffle_id)
            if shuffle is None:
                return
            self._budget.refuse(
                lambda put: put == (shuffle, source),
                lambda: AttemptSupersededError(
                    f"attempt {source.attempt} of map {source.map_id} of shuffle {shuffle_id!r} "
                    "was discarded while a block of it waited for memory"
                ),
            )
            self._budget.give_back(shuffle.discard(source))

    def drop(self, shuffle_id: str) -> None:
        """Forget a shuffle and remove its files; do nothing if it is not open."""
        if (forgotten := self.forget(shuffle_id)) is not None:
            self.remove_files(forgotten)

    def forget(self, shuffle_id: str, token: str = "") -> StoredShuffle | None:
        """Free a shuffle's blocks in memory, without waiting for the disk.

        Returns the shuffle, to be passed to `remove_files`; None if it is not open, or if the open
        shuffle of this name has another token.
        """
        with self._changed:
            shuffle = self._shuffles.get(shuffle_id)
            if shuffle is None or (token and not same_token(token, shuffle.token)):
                return None
            del self._shuffles[shuffle_id]
            shuffle.dropped = True
            self._budget.refuse(lambda put: put[0] is shuffle, lambda: _not_here(shuffle_id))
            self._budget.give_back(shuffle.resident_bytes)
            shuffle.forget_blocks()
            return shuffle

    def remove_files(self, forgotten: StoredShuffle) -> None:
        """Remove the files of a shuffle; this takes as long as the disk does."""
        self._spiller.remove_files(forgotten)

    def count_other_bytes(self, size: int) -> None:
        """Count bytes against the budget that are not those of blocks; a negative size frees."""
        with self._changed:
            self._budget.count_other(size)

    def close(self) -> None:
        """Stop spilling; puts that wait for memory, now or later, raise an error instead."""
        self.decoded.close(_stopping)
        with self._changed:
            self._budget.close(_stopping)
        self._spiller.stop()

    def shuffles(self) -> list[str]:
        """Return the ids of the open shuffles."""
        with self._changed:
            return list(self._shuffles)

    def tokens(self) -> dict[str, str]:
        """Return the tokens of the open shuffles by their ids."""
        with self._changed:
            return {shuffle.id: shuffle.token for shuffle in self._shuffles.values()}

    def stats(self) -> ServerStats:
        with self._changed:
            held = self._shuffles.values()
            return ServerStats(
                shuffles=len(held),
                blocks=sum(shuffle.blocks for shuffle in held),
                size_bytes=sum(shuffle.size_bytes for shuffle in held),
                memory_bytes=self._budget.held_bytes,
                spilled_blocks=sum(shuffle.spilled_blocks for shuffle in held),
                spilled_bytes=sum(shuffle.spilled_bytes for shuffle in held),
                dead_bytes=sum(shuffle.dead_bytes for shuffle in held),
            )

    @property
    def budget_bytes(self) -> int:
        """The most that it holds in memory."""
        return self._budget.budget_bytes

    def totals(self) -> StoreTotals:
        """Return what it has done until now."""
        with self._changed:
            return replace(self._totals)

    def _shuffle_of(self, shuffle_id: str, partition: int) -> StoredShuffle:
        shuffle = self._shuffles.get(shuffle_id)
        if shuffle is None:
            raise _not_here(shuffle_id)
        if not 0 <= partition < shuffle.partition_count:
            raise ProtocolError(
                f"shuffle {shuffle_id!r} has no partition {partition}, only "
                f"{shuffle.partition_count}"
            )
        return shuffle


def _stopping() -> ServerUnavailableError:
    return ServerUnavailableError("the data server is stopping")


def _not_here(shuffle_id: str) -> ShuffleNotFoundError:
    return ShuffleNotFoundError(
        f"shuffle {shuffle_id!r} is not on this data server: it was never opened, or was dropped"
    )
