"""Runs a stream: cuts batches, runs them, and commits them, until it is caught up or stopped."""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mrflight.errors import LostOffsetsError, MrflightError, StreamMovedError
from mrflight.ids import new_job_id
from mrflight.scheduler.job_run import JobRun
from mrflight.sinks import open_sink
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.storage import locate
from mrflight.streams.batch_cut import BatchLimits, after, cut_batch, waiting
from mrflight.streams.batch_job import BatchJobs
from mrflight.streams.committer import CommittedBatch, Committer
from mrflight.streams.dead_letters import DeadLetters
from mrflight.streams.event_size import EventSize
from mrflight.streams.live import Live
from mrflight.streams.live_kinds import open_live
from mrflight.streams.open_positions import open_positions
from mrflight.streams.positions import Position, Positions
from mrflight.streams.stream_progress import StreamProgress
from mrflight.streams.stream_settings import StreamSettings

if TYPE_CHECKING:
    from mrflight.sinks.commit.base import Sink

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.2
"""How often the ends of the partitions are asked for while events wait for their commit."""

_NEW_PARTITIONS_EVERY_S = 10.0
"""How often the cluster is asked for new topics and partitions."""

_MAX_PAUSE_S = 30.0
_FIRST_OUTAGE_S = 60.0
"""How long a stream that has not begun tries to reach the brokers: their address may be wrong."""

_MAX_OUTAGE_S = 900.0
"""How long a stream tries again before the cause of an outage ends it."""

_MAX_STANDBY_S = 5.0
"""How long a stream waits, at most, while another ingester of the same stream is faster."""


class StreamRun:
    """One run of a stream, with the processes of its job."""

    def __init__(
        self,
        job: JobRun,
        settings: StreamSettings,
        stopping: threading.Event,
        progress: StreamProgress,
    ) -> None:
        """``stopping`` is set when the stream is to stop after the batch that runs."""
        self._job = job
        self._settings = settings
        self._stopping = stopping
        self._progress = progress
        self._batches = BatchJobs(job, settings)
        self._size = EventSize()
        self._limits = BatchLimits(settings.max_rows, settings.max_bytes)
        self._sink: Sink | None = None
        self._live: Live | None = None
        self._ends: Position | None = None
        """The ends at which a bounded stream stops."""
        self._had_last = False
        """True once the final batch after a request to stop was cut."""
        self._refreshed_at = time.monotonic()
        self._moves = 0

    def run(self) -> None:
        """Run until the stream is caught up or told to stop.

        Raises JobError for what is wrong with the job or its input, and JobFailedError for an
        outage that lasts. What is committed stays, and nothing else is left.
        """
        if (positions := self._connect()) is None:
            return
        self._positions, outage = positions, _Outage(_MAX_OUTAGE_S)
        with ExitStack() as stack:
            self._committer = stack.enter_context(
                Committer(self._settings, self._positions, self._dead_letters(), self._committed)
            )
            live = open_live(self._job, self._settings, positions, self._committer, self._batches)
            if live is not None:
                self._live = stack.enter_context(live)
            while True:
                try:
                    self._run()
                    return
                except StreamMovedError as error:
                    self._stand_by(error)
                except LostOffsetsError as error:
                    if not self._settings.takes_earliest:
                        raise
                    self._progress.say(f"{error}; the stream goes on without them")
                except MrflightError as error:
                    if self._waits_after(error, outage):
                        return
                # What is recorded must not be read while a commit may still move it on.
                self._committer.settle()
                self._sink = None

    def _connect(self) -> Positions | None:
        """Wait until the brokers tell what there is to read; None if the stream is to stop."""
        outage = _Outage(_FIRST_OUTAGE_S)
        while True:
            try:
                return open_positions(self._job.spec, self._job.folder, self._settings)
            except MrflightError as error:
                if self._waits_after(error, outage):
                    return None

    def _waits_after(self, error: MrflightError, outage: _Outage) -> bool:
        """Wait before the next try, and return whether the stream is to stop; raise the error."""
        pause_s = outage.pause(error)
        self._progress.say(f"{error}; the stream tries again in {pause_s:.0f} s")
        return self._stopping.wait(pause_s)

    def _dead_letters(self) -> DeadLetters | None:
        if self._settings.dead_letter is None:
            return None
        job = self._job
        table = locate(self._settings.dead_letter, job.folder, job.spec.storage)
        return DeadLetters(table, self._settings.name)

    def _run(self) -> None:
        """Go on from what the table has recorded."""
        self._sink = sink = self._open_sink(new_job_id())
        recorded = sink.recorded_offsets(self._settings.name)
        self._batches.begin_with(sink.stored_schema())
        position = self._positions.position(recorded)
        position = self._positions.check_kept(
            position, takes_earliest=self._settings.takes_earliest
        )
        self._committer.begin(recorded, position)
        if not recorded and self._is_start_fleeting():
            if self._knows_columns():
                self._run_batch(tuple(OffsetRange(*each, at, at) for each, at in position.items()))
            else:
                self._positions.keep_start(position)
        if self._settings.is_bounded and self._ends is None:
            self._ends = self._positions.ends()
        while (ranges := self._next_batch(position)) is not None:
            self._run_batch(ranges)
            position = after(position, ranges)
        self._committer.wait()
        self._progress.lag = waiting(position, self._positions.ends())

    def _is_start_fleeting(self) -> bool:
        """Return whether "latest", or a time, may mean another offset when the stream starts again.

        Such a start is recorded before the first event.
        """
        section = self._job.spec.inputs[self._settings.input]
        return section.kafka is not None and section.start != "earliest"

    def _knows_columns(self) -> bool:
        """Return whether the table can be made, or is there, before the first event."""
        section = self._job.spec.inputs[self._settings.input]
        infers = section.format in ("json", "csv", "arrow") and not section.types
        return not infers or section.schema != "strict" or self._batches.schema is not None

    def _run_batch(self, ranges: tuple[OffsetRange, ...]) -> None:
        job_id = new_job_id()
        sink = self._next_sink(job_id)
        batch = self._batches.write(ranges, sink, job_id)
        self._size.seen(ranges, batch.input_bytes)
        self._committer.submit(batch)
        self._sink = sink

    def _next_sink(self, job_id: str) -> Sink:
        """Return the sink of the next batch, which may be written before the last is committed.

        The first commit may create the table, which decides how later rows are stored.
        """
        assert self._sink is not None, "a run opens it"
        if not self._committer.recorded:
            self._committer.wait()
            return self._open_sink(job_id)
        return self._sink.following(job_id) or self._open_sink(job_id)

    def _open_sink(self, job_id: str) -> Sink:
        job = self._job
        return open_sink(job.spec.output, job.folder, job.spec.storage, job_id, None)

    def _next_batch(self, position: Position) -> tuple[OffsetRange, ...] | None:
        """Return the ranges of the next batch, once it is due; None if the stream is to end."""
        first_seen: float | None = None
        while not self._stopping.is_set():
            self._committer.check()  # it would wait for the next events otherwise
            ends = self._look_ends(position)
            count, most = waiting(position, ends), self._limits.events(self._size.bytes)
            self._progress.lag = count
            if self._live is not None:
                self._live.follow(position)
            is_due = first_seen is not None and self._is_due(first_seen)
            if count and (count >= most or is_due or self._ends is not None):
                return self._cut(position, ends, count)
            if self._ends is not None:
                return None
            if count and first_seen is None:
                first_seen = time.monotonic()
            self._pause(first_seen)
        return self._last_batch(position)

    def _last_batch(self, position: Position) -> tuple[OffsetRange, ...] | None:
        """Return the final batch after a request to stop: the events that wait for the commit.

        Returns None if there are none, or if a whole batch or more waits, which the next run reads.
        """
        if self._had_last or self._ends is not None:
            return None
        self._had_last = True
        ends = self._look_ends(position)
        count = waiting(position, ends)
        if not 0 < count < self._limits.events(self._size.bytes):
            return None
        return self._cut(position, ends, count)

    def _cut(self, position: Position, ends: Position, count: int) -> tuple[OffsetRange, ...]:
        """Return the next batch of ``count`` events, or of as many as a batch has at most."""
        most = self._limits.events(self._size.bytes)
        if self._live is not None and count < most:
            ends = self._live.cut(position, ends)
        ranges = cut_batch(position, ends, most)
        self._progress.lag = count - sum(each.count for each in ranges)
        return ranges

    def _is_due(self, first_seen: float) -> bool:
        return time.monotonic() - first_seen >= self._settings.commit_s

    def _pause(self, first_seen: float | None) -> None:
        """Wait for events, or for the time of a commit."""
        pause_s = min(_LOOK_EVERY_S, self._settings.commit_s)
        if first_seen is not None:
            left_s = first_seen + self._settings.commit_s - time.monotonic()
            pause_s = min(pause_s, max(0.0, left_s))
        self._stopping.wait(pause_s)

    def _look_ends(self, position: Position) -> Position:
        """Return up to where events can be read, and add new partitions to the position."""
        if self._ends is not None:
            return self._ends
        if time.monotonic() - self._refreshed_at >= _NEW_PARTITIONS_EVERY_S:
            self._positions.refresh()
            self._refreshed_at = time.monotonic()
            known = set(position)
            found = self._positions.position(
                {
                    self._positions.name(each): position[each]
                    for each in self._positions.partitions
                    if each in position
                }
            )
            position |= {each: offset for each, offset in found.items() if each not in known}
        return {each: end for each, end in self._positions.ends().items() if each in position}

    def _committed(self, batch: CommittedBatch) -> None:
        self._moves = 0
        if self._live is not None:
            self._live.committed()
        self._progress.committed(batch)

    def _stand_by(self, error: StreamMovedError) -> None:
        """Wait a moment, and go on from where another ingester of this stream has come to.

        The longer the other one is faster, the longer this one waits. It takes over if that ends.
        """
        self._moves += 1
        if self._moves == 1:
            self._progress.say(f"{error}; this one goes on from there, and stands by meanwhile")
        longest_s = min(_MAX_STANDBY_S, 0.1 * 2 ** min(self._moves, 10))
        self._stopping.wait(random.uniform(0, longest_s))


class _Outage:
    """How long to wait before a batch is tried again."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._began: float | None = None
        self._tries = 0
        self._last = 0.0

    def pause(self, error: MrflightError) -> float:
        """Return for how long to wait after an error; raise it if waiting does not help."""
        if not error.retryable:
            raise error
        now = time.monotonic()
        if self._began is None or now - self._last > 2 * _MAX_PAUSE_S:
            self._began, self._tries = now, 0
        if now - self._began > self._longest_s:
            raise error
        self._last = now
        self._tries += 1
        return min(_MAX_PAUSE_S, 0.5 * 2 ** min(self._tries, 10))
