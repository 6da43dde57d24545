"""Reads a partition out of memory and off the disk, a run of blocks at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from mrflight.errors import IncompletePartitionError, ShuffleNotFoundError, SpillError
from mrflight.shuffle.store.spill_file import SpilledBlock, SpillFile
from mrflight.shuffle.store.stored_shuffle import StoredAttempt, StoredPartition, StoredShuffle
from mrflight.shuffle.wire.block import Block

RUN_BYTES = 2**20
"""Of small blocks that are read together: 2,000 partitions make blocks of some KiB."""


class PartitionReader:
    """The blocks of one partition in a given order, each looked for when its turn comes.

    So nothing is held for a reader but the run of blocks that it is at. What
    is spilled meanwhile it finds on disk, and what it reads there is not kept.
    """

    def __init__(
        self,
        lock: threading.Condition,
        shuffle: StoredShuffle,
        partition: StoredPartition,
        order: Sequence[tuple[int, StoredAttempt]],
        clock: Callable[[], int],
    ) -> None:
        self._lock = lock
        self._shuffle = shuffle
        self._partition = partition
        self._order = order
        self._clock = clock

    def blocks(self) -> Iterator[Block]:
        """The blocks, once.

        Raises ShuffleNotFoundError where the shuffle is dropped meanwhile,
        IncompletePartitionError where an attempt of these is discarded, and
        SpillError.
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
        """Some blocks that are in memory, or some neighbours on disk: one at least."""
        self._check_shuffle()
        resident: list[Block] = []
        spilled: list[SpilledBlock] = []
        size = 0
        while done < len(self._order) and size < RUN_BYTES:
            place, attempt = self._order[done]
            self._check_attempt(attempt)
            if place < self._partition.spilled_count:
                on_disk = self._partition.spilled_at(place)
                follows = not spilled or sum(spilled[-1][:2]) == on_disk.offset
                if resident or not follows:
                    break
                spilled.append(on_disk)
                size += on_disk.size
            else:
                if spilled:
                    break
                resident.append(self._partition.resident_at(place))
                size += resident[-1].body.size
            done += 1
        return resident, spilled

    def _load(self, file: SpillFile, run: Sequence[SpilledBlock]) -> list[Block]:
        try:
            return file.read(run)
        except SpillError:
            with self._lock:
                self._check_shuffle()  # what is dropped has no file any more
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
