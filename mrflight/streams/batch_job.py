"""Runs a batch of a stream as a job, up to the part files that wait for their commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from mrflight.config.spec import JobSpec
from mrflight.config.stream_batch import StreamBatch
from mrflight.errors import BadRowError
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
from mrflight.sources.kafka.messages import METADATA
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.streams.schema_growth import with_new_fields
from mrflight.streams.stream_settings import StreamSettings
from mrflight.tasks.part_files import ReduceResult

log = logging.getLogger(__name__)

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
    written_s: float
    """How long reading, shuffling and writing took."""

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


class BatchJobs:
    """Runs the batches of a stream with the processes of its job."""

    def __init__(self, job: JobRun, settings: StreamSettings) -> None:
        self._job = job
        self._settings = settings
        self._schema: pa.Schema | None = None
        """The schema of the events, once a batch has found it out."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the events, once a batch has found it out."""
        return self._schema

    def begin_with(self, stored: pa.Schema | None) -> None:
        """Take the columns of the table for those of the events, if nothing is made of these.

        Otherwise they are inferred from the first events again, which may have other fields now. A
        merge does not store the columns that only say what becomes of a row.
        """
        spec, section = self._job.spec, self._job.spec.inputs[self._settings.input]
        is_plain = not section.is_mapped and spec.reduce is None and len(spec.inputs) == 1
        is_json = section.format == "json" and section.envelope == "none"
        infers = is_json and section.columns is None and section.schema == "strict"
        order, is_all = spec.output.order_by, spec.output.delete_when is None
        if stored is not None and order is not None:
            is_all = is_all and order in (*stored.names, *METADATA.names)
        if stored is not None and is_all and is_plain and infers and not spec.stages:
            own = [field for field in stored if field.name not in METADATA.names]
            self._schema = pa.schema(own if section.metadata else stored)

    def write(self, ranges: tuple[OffsetRange, ...], sink: Sink, job_id: str) -> WrittenBatch:
        """Read the events of some ranges, and write part files for a sink of this job id.

        Raises what a job raises, with its files removed.
        """
        batch = self._run(ranges, sink, job_id)
        if (grown := self._grown_schema(batch)) is not None:
            batch.job.interrupts.clean_up(sink.abort)
            log.info("new fields: %s", ", ".join(set(grown.names) - set(self._schema_names)))
            self._schema = grown
            batch = self._run(ranges, sink, job_id)
        if self._settings.on_bad_row == "stop" and batch.bad_rows:
            batch.job.interrupts.clean_up(sink.abort)
            first = batch.bad_rows[0]
            raise BadRowError(
                f"{first.file}, offset {first.line}: {first.reason}; nothing of its batch was "
                'committed: set stream.on_bad_row to "dead_letter" or "skip" to go on without it'
            )
        return batch

    @property
    def _schema_names(self) -> list[str]:
        return [] if self._schema is None else list(self._schema.names)

    def _grown_schema(self, batch: WrittenBatch) -> pa.Schema | None:
        """Return the schema with new fields of a batch's events, if these are to be columns."""
        section = self._job.spec.inputs[self._settings.input]
        evolves = self._job.spec.output.schema == "evolve" and section.columns is None
        is_json = section.format == "json" and section.envelope == "none"
        if self._schema is None or not (evolves and is_json and batch.bad_rows):
            return None
        return with_new_fields(self._schema, batch.bad_rows)

    def _run(self, ranges: tuple[OffsetRange, ...], sink: Sink, job_id: str) -> WrittenBatch:
        started = time.monotonic()
        metrics = JobMetrics(PhaseTimer(started), job_id=job_id)
        with Recorder() as events:
            job = self._job.next_batch(self._batch_spec(ranges), metrics, events)
            try:
                reduced = self._write(job, sink)
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
            time.monotonic() - started,
        )

    def _write(self, job: JobRun, sink: Sink) -> Sequence[ReduceResult]:
        spec, memory = job.spec, job.settings.memory
        plan = job.deadline.run(
            partial(plan_inputs, spec, job.folder, job.metrics.job_id, job.runner.workers, memory),
            "the inputs of a batch were analyzed, with nothing committed",
        )
        self._remember_schema(plan)
        if (schema := plan.last.result_schema) is not None:
            sink.check_rows(schema)
        with ExitStack() as stack:
            scheduler, shuffles = job.begin_writing(stack, plan, needs_lock=sink.needs_lock)
            with job.deadline.attribute_timeouts():
                reduced = scheduler.write(sink.part_writer.with_memory_limit(memory.encoder))
            shuffles.drop()
        return reduced

    def _remember_schema(self, plan: JobPlan) -> None:
        """Let later batches have the columns that were inferred from this one's events."""
        for stage in plan.stages:
            source = plan.sources.get(stage.name, {}).get(self._settings.input)
            if source is not None and isinstance(source.reader, KafkaReader):
                self._schema = source.reader.format.schema

    def _batch_spec(self, ranges: tuple[OffsetRange, ...]) -> JobSpec:
        spec, name = self._job.spec, self._settings.input
        batch = StreamBatch(
            {(each.topic, each.partition): (each.start, each.stop) for each in ranges},
            self._schema,
            self._job.runner.workers,
            min(self._job.settings.memory.writer, _MAX_FETCHED_BYTES),
        )
        section = replace(spec.inputs[name], batch=batch, bad_rows="skip")
        # Attempts that lose against a speculative one would go on writing beside the next batch.
        job = replace(spec.job, speculation=False)
        return replace(spec, job=job, inputs={**spec.inputs, name: section})
