"""Commits the batches of a stream in their order, while the next one is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from types import MappingProxyType

import msgspec

from mrflight.errors import InputError, MrflightError, StreamMovedError, UnsyncedCommitError
from mrflight.ids import new_job_id
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sources.recorded_names import current_name, without_marks
from mrflight.streams.batch_job import WrittenBatch
from mrflight.streams.dead_letters import DeadLetters
from mrflight.streams.positions import Position, Positions
from mrflight.streams.stream_settings import StreamSettings
from mrflight.streams.table_upkeep import TableUpkeep
from mrflight.system.closeable import Closeable
from mrflight.system.signals import run_interruptibly
from mrflight.units import format_count

NO_MARKS: Mapping[str, int] = MappingProxyType({})

MIN_BAD_ROWS = 10
"""So many bad events never stop a stream by their share, which says little about few events."""


class CommittedBatch(msgspec.Struct, frozen=True):
    """What a commit has added."""

    version: int | None
    rows_in: int
    rows_out: int
    rejected: int
    commit_s: float
    recorded: Mapping[str, int]
    """The offsets that the table has now."""


class Committer(Closeable):
    """Commits one batch at a time, beside the next one. A context manager.

    A batch that cannot be committed leaves no files, and those after it are not committed either.
    """

    def __init__(
        self,
        settings: StreamSettings,
        positions: Positions,
        dead_letters: DeadLetters | None,
        on_commit: Callable[[CommittedBatch], None],
        thread: Executor,
    ) -> None:
        """``on_commit`` is called in the thread that commits, after each commit.

        ``thread`` runs one call after the other, and is closed with this.
        """
        self._settings = settings
        self._positions = positions
        self._dead_letters = dead_letters
        self._on_commit = on_commit
        self._upkeep = TableUpkeep() if settings.has_upkeep else None
        self._thread = thread
        self._running: Future[None] | None = None
        self.recorded: dict[str, int] = {}
        """The offsets that the table has, as far as this stream knows."""
        self._reached: dict[str, int] = {}
        """Where the batch that is committed next has to begin, by partition."""

    def begin(self, recorded: Mapping[str, int], position: Position) -> None:
        """Go on from the offsets that the table has recorded, with a batch from this position.

        The position of a partition that the table does not know is recorded by the next commit,
        so that it is the same for whoever goes on, whatever the partition's events are then.
        """
        self.recorded = dict(recorded)
        self._reached = {self._positions.name(each): start for each, start in position.items()}

    def submit(self, batch: WrittenBatch, marks: Mapping[str, int] = NO_MARKS) -> None:
        """Commit a batch with the marks of its end, once the one before it is committed.

        Raises what that one raised; the files of ``batch`` are then removed.
        """
        try:
            self.wait()
        except BaseException:
            batch.discard()
            raise
        self._running = self._thread.submit(self._commit, batch, marks)

    def wait(self) -> None:
        """Wait for the commit that runs, and raise what it raises."""
        if self._running is not None:
            running, self._running = self._running, None
            try:
                run_interruptibly(running.result)
            except KeyboardInterrupt:
                self._running = running
                raise

    @property
    def is_idle(self) -> bool:
        """True if all batches are committed, as `check` or `wait` has found."""
        return self._running is None

    def check(self) -> None:
        """Raise what the last commit has raised, if it has ended."""
        if self._running is not None and self._running.done():
            self.wait()

    def settle(self) -> None:
        """Wait for the commit that runs, whatever comes of it: the table tells.

        Raises UnsyncedCommitError, because what the table tells may not be on the disk.
        """
        try:
            self.wait()
        except MrflightError as error:
            if isinstance(error, UnsyncedCommitError):
                raise

    def close(self) -> None:
        """Wait for the commit that runs, whatever comes of it."""
        self._thread.shutdown(wait=True)

    def _commit(self, batch: WrittenBatch, marks: Mapping[str, int]) -> None:
        started = time.monotonic()
        try:
            self._check_bad_rows(batch)
            offsets = self._offsets(batch, marks)
            self._reject(batch, offsets)
            version = batch.commit(offsets)
        except BaseException:
            batch.discard()
            raise
        self.recorded = {
            name: at for name, at in self.recorded.items() if name not in offsets.forgotten
        } | dict(offsets.after)
        self._reached |= offsets.after
        commit_s = time.monotonic() - started
        self._on_commit(
            CommittedBatch(
                version,
                batch.rows_in,
                batch.rows_out,
                batch.bad_count,
                commit_s,
                without_marks(self.recorded),
            )
        )
        if self._upkeep is not None:
            self._upkeep.after_commit(batch.sink)
        self._positions.committed(self.recorded)

    def _offsets(self, batch: WrittenBatch, marks: Mapping[str, int]) -> StreamOffsets:
        """Return what the commit moves; raise StreamMovedError for another batch than the next."""
        names = {self._positions.name((each.topic, each.partition)): each for each in batch.ranges}
        for name, each in names.items():
            if each.start != (reached := self._reached.setdefault(name, each.start)):
                raise StreamMovedError(
                    f"stream {self._settings.name!r} has come to offset {reached} of {name}, and "
                    f"the batch begins at {each.start}; nothing of it was committed"
                )
        first = {name: at for name, at in self._reached.items() if name not in self.recorded}
        after = {**first, **{name: each.stop for name, each in names.items()}, **marks}
        began = {**first, **{name: each.start for name, each in names.items()}}
        starts = {name: at for name, at in began.items() if at != self.recorded.get(name)}
        return StreamOffsets(
            self._settings.name,
            {name: self.recorded[name] for name in after if name in self.recorded},
            after,
            {"starts": starts} if starts else {},
            tuple(
                each for each in self.recorded if each not in after and current_name(each) in after
            ),
        )

    def _check_bad_rows(self, batch: WrittenBatch) -> None:
        """Raise InputError if more events of a batch are bad than the stream allows."""
        bad, read = batch.bad_count, batch.rows_in + batch.bad_count
        if bad <= max(MIN_BAD_ROWS, self._settings.max_bad * read):
            return
        first = batch.bad_rows[0] if batch.bad_rows else None
        example = "" if first is None else f", the first is {first.file} {first.line}: "
        raise InputError(
            f"stream {self._settings.name!r}: {format_count(bad, 'event')} of {read:,} cannot be "
            f"decoded, more than stream.max_bad ({self._settings.max_bad:.2%})"
            f"{example}{first.reason if first else ''}; nothing of this batch was committed: "
            "correct the format, or raise stream.max_bad"
        )

    def _reject(self, batch: WrittenBatch, offsets: StreamOffsets) -> None:
        if self._dead_letters is None or not batch.bad_rows:
            return
        names = {each: self._positions.name(each) for each in self._positions.partitions}
        ends = without_marks(offsets.after)
        self._dead_letters.commit(new_job_id(), batch.bad_rows, ends, names)
