"""The thread that writes a store's coldest partitions to disk when memory gets short."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from mrflight.errors import SpillError
from mrflight.ids import MapAttempt
from mrflight.shuffle.store.memory_budget import MemoryBudget
from mrflight.shuffle.store.spill_file import append_blocks
from mrflight.shuffle.store.store_totals import StoreTotals
from mrflight.shuffle.store.stored_shuffle import (
    ResidentBlock,
    StoredPartition,
    StoredShuffle,
    WrittenBlock,
)
from mrflight.system.malloc import return_freed_memory
from mrflight.system.scratch import ScratchFolder
from mrflight.units import format_bytes

log = logging.getLogger(__name__)

PIECE_BYTES = 16 * 2**20
"""Bytes that are written at a time. Then their memory is given back, and waiting puts continue."""

DROP_TIMEOUT_S = 20.0
"""The time for which a drop waits for the piece that is being written. Its caller gives up after
2 s, and the files are removed all the same."""

STOP_TIMEOUT_S = 20.0

Key = TypeVar("Key")


class Resident(NamedTuple, Generic[Key]):
    """The bytes of a partition in memory, and its last use as a number that grows."""

    partition: Key
    size_bytes: int
    touched: int


def plan_spill(resident: Sequence[Resident[Key]], excess_bytes: int) -> list[Key]:
    """Return the partitions to spill, in order, to free ``excess_bytes``.

    Partitions of at least average size come first, the coldest of them first: their writes are
    large, and small partitions may still grow. The others follow, also the coldest first.
    """
    total = sum(each.size_bytes for each in resident)
    chosen: list[Key] = []
    for each in sorted(
        resident, key=lambda each: (each.size_bytes * len(resident) < total, each.touched)
    ):
        if excess_bytes <= 0:
            break
        chosen.append(each.partition)
        excess_bytes -= each.size_bytes
    return chosen


Victim = tuple[StoredShuffle, StoredPartition]


class Spiller:
    """Spills for one store, whose lock ``changed`` holds.

    The thread starts when it is first needed. It writes outside of the lock,
    so that puts and reads go on meanwhile.
    """

    def __init__(
        self,
        changed: threading.Condition,
        budget: MemoryBudget[tuple[StoredShuffle, MapAttempt]],
        shuffles: Callable[[], Iterable[StoredShuffle]],
        scratch: ScratchFolder,
        totals: StoreTotals,
    ) -> None:
        self._changed = changed
        self._budget = budget
        self._shuffles = shuffles
        self._scratch = scratch
        self._totals = totals
        self.idle = True
        """Whether nothing is written until memory gets short again."""
        self._writing: StoredShuffle | None = None
        self._stopped = False
        self._freed_bytes = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start spilling when there is need. Must be called with the lock held."""
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="spiller", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread after the piece that it is writing."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)  # do not wait for a disk that hangs

    def remove_files(self, shuffle: StoredShuffle) -> None:
        """Remove the files of a dropped shuffle, once nothing more of it is being written.

        If a piece takes too long, this returns, and the thread removes the files after the piece.
        """
        with self._changed:
            ended = self._changed.wait_for(lambda: self._writing is not shuffle, DROP_TIMEOUT_S)
        if ended:
            _remove_files(shuffle)

    def _run(self) -> None:
        while True:
            with self._changed:
                self.idle = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopped or self._budget.excess_bytes > 0)
                self.idle = False
                if self._stopped:
                    return
                excess = self._budget.excess_bytes
                victims = self._victims(excess)
            try:
                self._spill(victims, excess)
            except SpillError as error:
                log.warning("%s", error)
                self._fail(str(error))
            except Exception as error:
                log.exception("spilling failed for an unexpected reason")
                self._fail(f"cannot spill: {error!r}")

    def _victims(self, excess: int) -> list[Victim]:
        resident = [
            Resident((shuffle, partition), partition.resident_bytes, partition.touched)
            for shuffle in self._shuffles()
            for partition in shuffle.partitions.values()
            if partition.resident_bytes
        ]
        return plan_spill(resident, excess)

    def _spill(self, victims: list[Victim], excess: int) -> None:
        for shuffle, partition in victims:
            while excess > 0 and not self._stopped:
                freed = self._spill_piece(shuffle, partition, min(excess, PIECE_BYTES))
                excess -= freed
                self._return_memory(freed)
                if not freed:
                    break

    def _return_memory(self, freed: int) -> None:
        self._freed_bytes += freed
        if self._freed_bytes >= PIECE_BYTES:  # not for every small partition
            self._freed_bytes = 0
            return_freed_memory()

    def _spill_piece(self, shuffle: StoredShuffle, partition: StoredPartition, size: int) -> int:
        """Write the oldest blocks in memory of a partition; return the bytes that this freed."""
        with self._changed:
            if shuffle.dropped or not partition.resident_bytes:
                return 0
            blocks = partition.first_resident(size)
            self._writing = shuffle
        written: list[WrittenBlock | None] = []
        try:
            written = self._write(shuffle, partition, blocks)
            blocks.clear()  # the memory that is given back below
        finally:
            with self._changed:
                dropped = shuffle.dropped
                freed = 0 if dropped else shuffle.move_to_disk(partition, written)
                if written:
                    self._budget.spilled()
                    self._totals.spilled_bytes += sum(
                        each.block.size for each in written if each is not None
                    )
                self._budget.give_back(freed)
            if dropped:
                _remove_files(shuffle)
            with self._changed:
                self._writing = None
                self._changed.notify_all()
        return freed

    def _write(
        self,
        shuffle: StoredShuffle,
        partition: StoredPartition,
        blocks: Sequence[ResidentBlock | None],
    ) -> list[WrittenBlock | None]:
        """Write blocks in the order in which they will be read, as far as they are here."""
        order = sorted(
            ((position, block) for position, block in enumerate(blocks) if block is not None),
            key=lambda placed: placed[1].attempt.source,
        )
        held_bytes = shuffle.spilled_bytes + shuffle.dead_bytes
        try:
            if shuffle.spill_folder is None:
                folder = self._scratch.path / f"{shuffle.serial}-{shuffle.id}"
                folder.mkdir()
                shuffle.spill_folder = folder
            path = shuffle.spill_path(partition)
            bodies = [resident.block for _, resident in order]
            spilled = append_blocks(path, partition.file_bytes, bodies)
        except OSError as error:
            size = sum(resident.block.body.size for _, resident in order)
            raise SpillError(
                f"cannot spill partition {partition.number} of shuffle {shuffle.id!r} below "
                f"{self._scratch.root}: {error}; make room there, or choose another folder "
                "(cluster.spill_dir of a job, --spill-dir of a server) or more memory "
                f"(cluster.memory, --memory): {format_bytes(size)} were to be written beside "
                f"{format_bytes(held_bytes)} of the shuffle"
            ) from error
        written: list[WrittenBlock | None] = [None] * len(blocks)
        for (position, resident), block in zip(order, spilled, strict=True):
            written[position] = WrittenBlock(resident.attempt, block)
        return written

    def _fail(self, message: str) -> None:
        with self._changed:
            self._budget.spilling_failed(partial(SpillError, message))


def _remove_files(shuffle: StoredShuffle) -> None:
    if shuffle.spill_folder is None:
        return
    try:
        shutil.rmtree(shuffle.spill_folder)
    except FileNotFoundError:
        log.debug("%s has been removed already", shuffle.spill_folder)
    except OSError as error:
        log.warning("%s stays until the server ends: %s", shuffle.spill_folder, error)
