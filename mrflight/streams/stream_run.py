"""Runs a stream: cuts batches, runs them, and commits them, until it is caught up or stopped."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mrflight.errors import LostOffsetsError, MrflightError, StreamMovedError
from mrflight.ids import new_job_id
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.streams.batch_cut import BatchLimits, after, cut_batch, waiting
from mrflight.streams.batches import Batches
from mrflight.streams.committer import CommittedBatch, Committer
from mrflight.streams.event_size import EventSize
from mrflight.streams.freshness import Freshness
from mrflight.streams.live import Live
from mrflight.streams.outage import Outage
from mrflight.streams.positions import Position, Positions
from mrflight.streams.stream_clock import StreamClock
from mrflight.streams.stream_parts import StreamParts
from mrflight.streams.stream_progress import StreamProgress

if TYPE_CHECKING:
    from mrflight.sinks.commit.base import Sink

_LOOK_EVERY_S = 0.2
"""How often the ends of the partitions are asked for while events wait for their commit."""

_NEW_PARTITIONS_EVERY_S = 10.0
"""How often the cluster is asked for new topics and partitions."""

_FIRST_OUTAGE_S = 60.0
"""How long a stream that has not begun tries to reach the brokers: their address may be wrong."""

_MAX_OUTAGE_S = 900.0
"""How long a stream tries again before the cause of an outage ends it."""

_MAX_STANDBY_S = 5.0
"""How long a stream waits, at most, while another ingester of the same stream is faster."""


class StreamRun:
    """One run of a stream."""

    def __init__(self, parts: StreamParts, clock: StreamClock, progress: StreamProgress) -> None:
        self._parts = parts
        self._settings = settings = parts.settings
        self._clock = clock
        self._progress = progress
        self._batches = Batches(parts.spec, settings, parts.writer)
        self._size = EventSize()
        self._freshness = Freshness()
        self._limits = BatchLimits(settings.max_rows, settings.max_bytes)
        self._sink: Sink | None = None
        self._live: Live | None = None
        self._ends: Position | None = None
        """The ends at which a bounded stream stops."""
        self._had_last = False
        """True once the final batch after a request to stop was cut."""
        self._refreshed_at = clock.now()
        self._moves = 0
        self._outage = Outage(_MAX_OUTAGE_S)
        self._is_stale = False
        """True if an error may be because of topics that are not there any more."""

    def run(self) -> None:
        """Run until the stream is caught up or told to stop.

        Raises JobError for what is wrong with the job or its input, and JobFailedError for an
        outage that lasts. What is committed stays, and nothing else is left.
        """
        if (positions := self._connect()) is None:
            return
        self._positions = positions
        with ExitStack() as stack:
            parts, letters = self._parts, self._parts.open_dead_letters()
            self._committer = stack.enter_context(
                Committer(self._settings, positions, letters, self._committed, parts.open_thread())
            )
            live = parts.open_live(positions, self._committer, self._batches)
            if live is not None:
                self._live = stack.enter_context(live)
            while True:
                try:
                    self._run()
                    return
                except StreamMovedError as error:
                    self._stand_by(error)
                except LostOffsetsError as error:
                    if not (self._settings.takes_earliest and error.is_deletion):
                        raise
                    self._progress.say(f"{error}; the stream goes on without them")
                except MrflightError as error:
                    if self._waits_after(error, self._outage):
                        return
                    self._is_stale = True
                # What is recorded must not be read while a commit may still move it on.
                self._committer.settle()
                self._freshness.again()
                self._sink = None

    def _connect(self) -> Positions | None:
        """Wait until the brokers tell what there is to read; None if the stream is to stop."""
        outage = Outage(_FIRST_OUTAGE_S)
        while True:
            try:
                return self._parts.open_positions()
            except MrflightError as error:
                if self._waits_after(error, outage):
                    return None

    def _waits_after(self, error: MrflightError, outage: Outage) -> bool:
        """Wait before the next try, and return whether the stream is to stop; raise the error."""
        pause_s = outage.pause(error, self._clock.now())
        self._progress.say(f"{error}; the stream tries again in {pause_s:.0f} s")
        return self._clock.wait(pause_s)

    def _run(self) -> None:
        """Go on from what the table has recorded."""
        if self._is_stale:
            self._refresh()
        self._sink = sink = self._parts.open_sink(new_job_id())
        recorded = sink.recorded_offsets(self._settings.name)
        self._batches.begin_with(sink.stored_schema())
        position = self._positions.position(recorded)
        position = self._positions.check_kept(
            position, takes_earliest=self._settings.takes_earliest
        )
        self._committer.begin(recorded, position)
        if not recorded and self._is_start_fleeting():
            if self._knows_columns():
                self._freshness.cut(0, self._clock.now())
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
        section = self._parts.spec.inputs[self._settings.input]
        return section.kafka is not None and section.start != "earliest"

    def _knows_columns(self) -> bool:
        """Return whether the table can be made, or is there, before the first event."""
        section = self._parts.spec.inputs[self._settings.input]
        infers = section.format in ("json", "csv", "arrow") and not section.types
        return not infers or section.schema != "strict" or self._batches.schema is not None

    def _run_batch(self, ranges: tuple[OffsetRange, ...]) -> None:
        job_id = new_job_id()
        sink = self._next_sink(job_id)
        marks = self._positions.marks(ranges)
        batch = self._batches.write(ranges, sink, job_id)
        self._size.seen(ranges, batch.input_bytes)
        self._committer.submit(batch, marks)
        self._sink = sink

    def _next_sink(self, job_id: str) -> Sink:
        """Return the sink of the next batch, which may be written before the last is committed.

        The first commit may create the table, which decides how later rows are stored.
        """
        assert self._sink is not None, "a run opens it"
        if not self._committer.recorded:
            self._committer.wait()
            return self._parts.open_sink(job_id)
        return self._sink.following(job_id) or self._parts.open_sink(job_id)

    def _next_batch(self, position: Position) -> tuple[OffsetRange, ...] | None:
        """Return the ranges of the next batch, once it is due; None if the stream is to end."""
        due_at: float | None = None
        while not self._clock.is_stopping:
            self._committer.check()  # it would wait for the next events otherwise
            ends = self._look_ends(position)
            count, most = waiting(position, ends), self._limits.events(self._size.bytes)
            self._progress.lag = count
            self._freshness.look(count, self._clock.now())
            if not count and self._committer.is_idle:
                self._outage.end()
            if self._live is not None:
                self._live.follow(position)
            is_due = due_at is not None and self._clock.now() >= due_at
            if count and (count >= most or is_due or self._ends is not None):
                return self._cut(position, ends, count)
            if self._ends is not None:
                return None
            if count and due_at is None:
                due_at = self._clock.now() + self._settings.commit_s
            self._pause(due_at)
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
        self._progress.lag = left = count - sum(each.count for each in ranges)
        self._freshness.cut(left, self._clock.now())
        return ranges

    def _pause(self, due_at: float | None) -> None:
        """Wait for events, or until a commit is due."""
        pause_s = min(_LOOK_EVERY_S, self._settings.commit_s)
        if due_at is not None:
            pause_s = min(pause_s, max(0.0, due_at - self._clock.now()))
        self._clock.wait(pause_s)

    def _look_ends(self, position: Position) -> Position:
        """Return up to where events can be read, and add new partitions to the position."""
        if self._ends is not None:
            return {each: end for each, end in self._ends.items() if each in position}
        if self._clock.now() - self._refreshed_at >= _NEW_PARTITIONS_EVERY_S:
            self._refresh()
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

    def _refresh(self) -> None:
        """Look for topics and partitions that have come or gone."""
        self._positions.refresh()
        self._refreshed_at, self._is_stale = self._clock.now(), False

    def _committed(self, batch: CommittedBatch) -> None:
        self._moves = 0
        self._outage.end()
        if self._live is not None:
            self._live.committed()
        self._progress.committed(batch, self._freshness.committed(self._clock.now()))

    def _stand_by(self, error: StreamMovedError) -> None:
        """Wait a moment, and go on from where another ingester of this stream has come to.

        The longer the other one is faster, the longer this one waits. It takes over if that ends.
        """
        self._moves += 1
        if self._moves == 1:
            self._progress.say(f"{error}; this one goes on from there, and stands by meanwhile")
        longest_s = min(_MAX_STANDBY_S, 0.1 * 2 ** min(self._moves, 10))
        self._clock.wait(random.uniform(0, longest_s))
