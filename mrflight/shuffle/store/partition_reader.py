"""Reads a partition from memory and from disk, a run of blocks at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from mrflight.errors import IncompletePartitionError, ShuffleNotFoundError, SpillError
from mrflight.shuffle.store.spill_file import SpilledBlock, SpillFile
from mrflight.shuffle.store.store_totals import StoreTotals
from mrflight.shuffle.store.stored_shuffle import StoredAttempt, StoredPartition, StoredShuffle
from mrflight.shuffle.wire.block import Block

RUN_BYTES = 2**20
"""The size of a run of small blocks: with 2,000 partitions, blocks have some KiB."""


class PartitionReader:
    """The blocks of one partition in a given order; each is looked up when it is next.

    So only the current run of blocks is held for a reader. Blocks that are spilled meanwhile are
    read from disk, and blocks that are read from disk are not kept.
    """

    def __init__(
        self,
        lock: threading.Condition,
        shuffle: StoredShuffle,
        partition: StoredPartition,
        order: Sequence[tuple[int, StoredAttempt]],
        clock: Callable[[], int],
        totals: StoreTotals,
    ) -> None:
        self._lock = lock
        self._shuffle = shuffle
        self._partition = partition
        self._order = order
        self._clock = clock
        self._totals = totals

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks, once.

        Raises ShuffleNotFoundError if the shuffle is dropped meanwhile, IncompletePartitionError if
        one of the attempts is discarded, and SpillError.
        """
        done = 0
        file: SpillFile | None = None
        try:
            while done < len(self._order):
                with self._lock:
                    self._partition.touched = self._clock()
                    run, spilled = self._next_run(done)
                if spilled:
                    file = file or SpillFile(self._shuffle.spill_path(self._partition))
                    run = self._load(file, spilled)
                done += len(run)
                yield from run
        finally:
            if file is not None:
                file.close()

    def _next_run(self, done: int) -> tuple[list[Block], list[SpilledBlock]]:
        """Return some blocks in memory, or some adjacent blocks on disk; at least one block."""
        self._check_shuffle()
        resident: list[Block] = []
        spilled: list[SpilledBlock] = []
        size = 0
        while done < len(self._order) and size < RUN_BYTES:
            position, attempt = self._order[done]
            self._check_attempt(attempt)
            if position < self._partition.spilled_count:
                on_disk = self._partition.spilled_at(position)
                follows = not spilled or sum(spilled[-1][:2]) == on_disk.offset
                if resident or not follows:
                    break
                spilled.append(on_disk)
                size += on_disk.size
            else:
                if spilled:
                    break
                resident.append(self._partition.resident_at(position))
                size += resident[-1].body.size
            done += 1
        self._totals.read_blocks += len(resident) + len(spilled)
        self._totals.read_bytes += size
        return resident, spilled

    def _load(self, file: SpillFile, run: Sequence[SpilledBlock]) -> list[Block]:
        try:
            return file.read(run)
        except SpillError:
            with self._lock:
                self._check_shuffle()  # a dropped shuffle has no files
            raise

    def _check_shuffle(self) -> None:
        if self._shuffle.dropped:
            raise ShuffleNotFoundError(
                f"shuffle {self._shuffle.id!r} was dropped while its partition "
                f"{self._partition.number} was read"
            )

    def _check_attempt(self, attempt: StoredAttempt) -> None:
        if attempt.discarded:
            raise IncompletePartitionError(
                f"attempt {attempt.source.attempt} of map {attempt.source.map_id} was discarded "
                f"while partition {self._partition.number} of shuffle {self._shuffle.id!r} was "
                "read; read it again"
            )
