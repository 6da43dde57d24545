"""Runs a batch of a stream as a job, up to the part files that wait for their commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.spec import JobSpec
from mrflight.config.stream_batch import StreamBatch
from mrflight.events.recorder import Recorder
from mrflight.planner.analyze import plan_inputs
from mrflight.planner.job_plan import JobPlan
from mrflight.scheduler.job_commit import JobCommit
from mrflight.scheduler.job_run import JobRun
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer
from mrflight.sinks.commit.base import Sink
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sources.bad_rows import BadRow
from mrflight.sources.kafka.kafka_reader import KafkaReader
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.streams.stream_settings import StreamSettings
from mrflight.tasks.part_files import ReduceResult

_MAX_FETCHED_BYTES = 64 << 20
"""A task fetches no more ahead, as it would only wait in memory. With less than that, fetched
events take the memory that maps have for rows on their way to a shuffle."""


@dataclass(frozen=True)
class WrittenBatch:
    """A batch whose part files are written, and whose commit comes next."""

    job: JobRun
    sink: Sink
    ranges: tuple[OffsetRange, ...]
    reduced: Sequence[ReduceResult]
    bad_rows: Sequence[BadRow]
    """The events that cannot be decoded, if they are kept."""
    bad_count: int
    schema: pa.Schema | None
    """The columns of the events, before maps and sql; None if they are not those of messages."""

    @property
    def rows_in(self) -> int:
        """The events that were decoded."""
        return self.job.metrics.rows_in

    @property
    def input_bytes(self) -> int:
        """The bytes of the events."""
        return self.job.metrics.input_bytes

    @property
    def rows_out(self) -> int:
        """The rows of the part files."""
        return sum(result.rows_out for result in self.reduced)

    def commit(self, offsets: StreamOffsets) -> int | None:
        """Commit the rows and the offsets in one version, which is returned.

        Raises StreamMovedError if the table has other offsets, and what `Sink.commit` raises.
        Nothing is committed then, as its message says, and the files are still there.
        """
        commit = JobCommit(self.job, self.reduced, offsets)
        commit.setup(self.sink)
        version = commit.run(self.sink)
        self.sink.cleanup()
        return version

    def discard(self) -> None:
        """Remove the part files, unless they are committed."""
        self.job.interrupts.clean_up(self.sink.abort)


class BatchJobs:
    """Runs the batches of a stream with the processes of its job."""

    def __init__(self, job: JobRun, settings: StreamSettings) -> None:
        self._job = job
        self._settings = settings

    def write(
        self, ranges: tuple[OffsetRange, ...], schema: pa.Schema | None, sink: Sink, job_id: str
    ) -> WrittenBatch:
        """Read the events of some ranges, and write part files for a sink of this job id.

        ``schema`` are the columns of the events, if they are known. Raises what a job raises, with
        its files removed.
        """
        metrics = JobMetrics(PhaseTimer(time.monotonic()), job_id=job_id)
        with Recorder() as events:
            job = self._job.next_batch(self._batch_spec(ranges, schema), metrics, events)
            try:
                reduced, found = self._write(job, sink)
            except BaseException:
                job.interrupts.clean_up(sink.abort)
                raise
        name = self._settings.input
        return WrittenBatch(
            job,
            sink,
            ranges,
            reduced,
            metrics.kept_bad_rows.get(name, ()),
            metrics.bad_rows.get(name, 0),
            schema if found is None else found,
        )

    def _write(self, job: JobRun, sink: Sink) -> tuple[Sequence[ReduceResult], pa.Schema | None]:
        spec, memory = job.spec, job.settings.memory
        plan = job.deadline.run(
            partial(plan_inputs, spec, job.folder, job.metrics.job_id, job.runner.workers, memory),
            "the inputs of a batch were analyzed, with nothing committed",
        )
        if (schema := plan.last.result_schema) is not None:
            sink.check_rows(schema)
        with ExitStack() as stack:
            scheduler, shuffles = job.begin_writing(stack, plan, needs_lock=sink.needs_lock)
            with job.deadline.attribute_timeouts():
                reduced = scheduler.write(sink.part_writer.with_memory_limit(memory.encoder))
            shuffles.drop()
        return reduced, self._found_schema(plan)

    def _found_schema(self, plan: JobPlan) -> pa.Schema | None:
        """Return the columns that were inferred from a batch's events, for those after it."""
        for stage in plan.stages:
            source = plan.sources.get(stage.name, {}).get(self._settings.input)
            if source is not None and isinstance(source.reader, KafkaReader):
                return source.reader.format.schema
        return None

    def _batch_spec(self, ranges: tuple[OffsetRange, ...], schema: pa.Schema | None) -> JobSpec:
        spec, name = self._job.spec, self._settings.input
        batch = StreamBatch(
            {(each.topic, each.partition): (each.start, each.stop) for each in ranges},
            schema,
            self._job.runner.workers,
            min(self._job.settings.memory.writer, _MAX_FETCHED_BYTES),
        )
        section = replace(spec.inputs[name], batch=batch, bad_rows="skip")
        # Attempts that lose against a speculative one would go on writing beside the next batch.
        job = replace(spec.job, speculation=False)
        return replace(spec, job=job, inputs={**spec.inputs, name: section})
