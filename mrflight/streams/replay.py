"""Decodes the dead letters of a stream again, and commits those that can be, each of them once.

A replay has a number, which counts up in both tables. The commit of its rows records the number
with the offsets that it has replayed, and then these are deleted from the dead letters under the
same number. A replay that ended in between is finished by the next one, from what the first commit
has recorded. Two replays at once have the same number, of which one is committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.input_frame import InputFrame
from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec
from mrflight.errors import CommitError, InputError, JobFileError
from mrflight.events.recorder import Recorder
from mrflight.ids import new_job_id
from mrflight.scheduler.job_run import JobRun, open_job
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.sinks import open_sink
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.delta.removed_rows import removal_count, remove_rows
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.recorded_names import REPLAY
from mrflight.storage import Location
from mrflight.streams.batch_job import BatchJobs
from mrflight.streams.event_decoder import EventDecoder
from mrflight.streams.rejected_events import read_rejected
from mrflight.streams.replayed_events import ReplayedEvents
from mrflight.streams.stream_job import StreamJob
from mrflight.streams.stream_table import StreamTable
from mrflight.units import format_count

MAX_EVENTS = 10_000
"""The events of one commit, whose offsets are in the log."""


class Replay(msgspec.Struct, frozen=True):
    """What a replay of dead letters has done."""

    stream: str
    table: str
    dead_letters: str
    replayed: int
    """The events that could be decoded, and are committed now."""
    left: int
    """The events that stay, as they still cannot be decoded."""
    not_passed: int
    """The events that stay, as the stream has not committed the batch that they are in."""
    present: int
    """The events that were in the table already, and are only removed from the dead letters."""
    commits: int
    version: int | None
    """The version of the last commit; None if there was nothing to commit."""
    reasons: dict[str, int]
    """Why events stay, with how many there are for each reason, of the first reasons."""

    def summary(self) -> str:
        """Return lines for people."""
        version = "" if self.version is None else f", version {self.version}"
        lines = [f"{format_count(self.replayed, 'event')} replayed into {self.table}{version}"]
        if self.present:
            count = format_count(self.present, "event")
            lines.append(f"{count} removed from the dead letters: the table has them already")
        if self.not_passed:
            count = format_count(self.not_passed, "event")
            lines.append(f"{count} left: the stream has not committed their batch yet; run it")
        if self.left:
            count = format_count(self.left, "event")
            lines.append(f"{count} left in {self.dead_letters}, for these reasons:")
            lines += [f"  {number:,}: {reason}" for reason, number in self.reasons.items()]
        return "\n".join(lines)


def replay_rejected(job: StreamJob, max_events: int = MAX_EVENTS) -> Replay:
    """Commit the dead letters that the job can decode now, at most so many in each commit.

    Raises what a job raises. Whenever this ends, no event is lost or there twice, and the next
    replay goes on.
    """
    dead_letters = _dead_letters(job)
    metrics = JobMetrics(PhaseTimer(time.monotonic()))
    run = _Replay(job, dead_letters, max_events)
    run.finish()  # what an earlier one has left
    if (events := run.next_events()) is None:
        return run.result()
    with (
        Recorder() as recorder,
        open_job(job.spec, job.folder, recorder, metrics, owns_process=True) as opened,
    ):
        while events is not None:
            run.commit(opened, events)
            events = run.next_events()
    return run.result()


def _dead_letters(job: StreamJob) -> Location:
    job.check_is_topic()
    if job.dead_letters is None:
        raise JobFileError(
            "stream.dead_letter is missing: there is nothing to replay; write the table of the "
            "dead letters"
        )
    if job.spec.output.mode != "append":
        raise JobFileError(
            "output.mode: dead letters cannot be replayed into a table that is merged into, as an "
            "old event would replace the rows of later ones"
        )
    return job.dead_letters


class _Replay:
    def __init__(self, job: StreamJob, dead_letters: Location, max_events: int) -> None:
        self._job = job
        self._location = dead_letters
        self._max_events = max_events
        self._stream = f"{job.settings.name}{REPLAY}"
        self._number = 0
        self._is_new = True
        self._key = ""
        self._events = ReplayedEvents(0)
        self._replayed = self._present = self._commits = 0
        self._version: int | None = None

    def result(self) -> Replay:
        events = self._events
        return Replay(
            self._job.settings.name,
            self._job.url,
            self._location.url,
            self._replayed,
            events.failed,
            events.not_passed,
            self._present,
            self._commits,
            self._version,
            dict(events.reasons),
        )

    @property
    def _app_id(self) -> str:
        return f"mrflight/{self._stream}/removed"

    def finish(self) -> None:
        """Delete the dead letters of a replay that is committed and was not finished."""
        rejected = DeltaTable.load(self._location)
        table = self._job.open_table()
        if rejected is None or table is None:
            raise InputError(
                f"{self._location.url if rejected is None else self._job.url}: there is no "
                "table, so that there is nothing to replay"
            )
        self._key = str(rejected.handle.metadata().id)
        # Before the dead letters are read: those of this number must not be among them.
        recorded = table.offsets(self._stream).get(self._key)
        self._is_new, self._number = recorded is None, recorded or 0
        if removal_count(rejected, self._app_id) < self._number:
            self._remove(self._logged(table))

    def _logged(self, table: StreamTable) -> dict[str, list[tuple[int, int]]]:
        """Return what the last replay has committed, as the log says."""
        for commit in table.commits(self._stream):
            if commit is None:
                break
            if commit.offsets.get(self._key, (None, 0))[1] == self._number:
                return dict(commit.replayed)
        raise CommitError(
            f"{table.url}: the commit of replay {self._number} is not in the history any "
            f"more, and its events were not deleted from {self._location.url}; delete those that "
            "the table has by hand"
        )

    def next_events(self) -> ReplayedEvents | None:
        """Return the next events that can be decoded; None if there are none."""
        table = self._job.open_table()
        assert table is not None, "it was there"
        recorded = table.recorded(self._job.settings.name)
        passed = {(each.topic, each.partition): each.next for each in recorded.partitions}
        rejected = DeltaTable.load(self._location)
        assert rejected is not None, "it was there"
        read = partial(read_rejected, self._location, rejected.version, self._job.spec.storage)
        events = ReplayedEvents(self._max_events)
        sample = (messages for messages in read())
        decoder = EventDecoder.of(self._job, lambda: list(sample))
        events.decode(decoder, read(), passed)
        self._events = events
        if not events.count:
            return None
        if found := events.remove_present(self._job):
            self._present += found
        return events

    def commit(self, opened: JobRun, events: ReplayedEvents) -> None:
        """Commit the rows of some events, and remove these from the dead letters."""
        job_id = new_job_id()
        spec = self._job.spec
        sink = open_sink(spec.output, self._job.folder, spec.storage, job_id, None)
        frame = _Decoded(events.table())
        ranges = tuple(
            OffsetRange(*place, start, stop)
            for place, spans in events.ranges().items()
            for start, stop in spans
        )
        batch = _ReplayJobs(opened, self._job, frame).write(ranges, None, sink, job_id)
        replayed: dict[str, list[tuple[int, int]]] = {}
        for each in ranges:
            place = f"{each.topic}/{each.partition}"
            replayed.setdefault(place, []).append((each.start, each.stop))
        offsets = StreamOffsets(
            self._stream,
            {} if self._is_new else {self._key: self._number},
            {self._key: self._number + 1},
            {"replayed": replayed},
        )
        try:
            self._version = batch.commit(offsets)
        except BaseException:
            batch.discard()
            raise
        self._is_new, self._number = False, self._number + 1
        self._replayed += events.rows
        self._commits += 1
        self._remove(replayed)

    def _remove(self, replayed: dict[str, list[tuple[int, int]]]) -> None:
        remove_rows(self._location, _predicate(replayed), self._app_id, self._number)


class _ReplayJobs(BatchJobs):
    """Writes events that are decoded already as a batch of the stream."""

    def __init__(self, opened: JobRun, job: StreamJob, frame: InputFrame) -> None:
        super().__init__(opened, job.settings)
        self._stream_job = job
        self._frame = frame

    def _batch_spec(self, ranges: tuple[OffsetRange, ...], schema: pa.Schema | None) -> JobSpec:
        spec, read = self._stream_job.spec, self._stream_job.input
        section = InputSpec(
            frame=self._frame,
            filter=read.filter,
            map=read.map,
            sql=read.sql,
            sql_table=read.sql_table,
            steps=read.steps,
            key=read.key,
            broadcast=read.broadcast,
        )
        inputs = {**spec.inputs, self._stream_job.settings.input: section}
        return replace(spec, inputs=inputs, job=replace(spec.job, speculation=False))


class _Decoded(InputFrame):
    """The rows of decoded events."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__("replayed events", rows.schema, rows.num_rows, rows.nbytes)
        self._rows = rows

    def look(self) -> Iterator[pa.RecordBatch]:
        return iter(self._rows.to_batches())

    def take(self) -> Iterator[pa.RecordBatch]:
        return self.look()


def _predicate(replayed: dict[str, list[tuple[int, int]]]) -> str:
    """Return the condition, in the SQL of deltalake, for the dead letters at these offsets."""
    terms = []
    for place, spans in replayed.items():
        topic, _, number = place.rpartition("/")
        offsets = ", ".join(str(each) for start, stop in spans for each in range(start, stop))
        quoted = topic.replace("'", "''")
        terms.append(
            f'("topic" = \'{quoted}\' AND "partition" = {number} AND "offset" IN ({offsets}))'
        )
    return " OR ".join(terms)
