"""The batches of a stream: with which columns they are written, and what bad events do to them."""

from __future__ import annotations

import logging
from typing import Protocol

import pyarrow as pa

from mrflight.config.spec import JobSpec
from mrflight.errors import BadRowError
from mrflight.sinks.commit.base import Sink
from mrflight.sources.kafka.messages import METADATA
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.streams.batch_job import WrittenBatch
from mrflight.streams.schema_growth import with_new_fields
from mrflight.streams.stream_settings import StreamSettings

log = logging.getLogger(__name__)


class BatchWriter(Protocol):
    """Reads events and writes part files of them, as `BatchJobs` does."""

    def write(
        self, ranges: tuple[OffsetRange, ...], schema: pa.Schema | None, sink: Sink, job_id: str
    ) -> WrittenBatch: ...


class Batches:
    """Has the batches of a stream written, one after the other."""

    def __init__(self, spec: JobSpec, settings: StreamSettings, writer: BatchWriter) -> None:
        self._spec = spec
        self._settings = settings
        self._writer = writer
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the events, once a batch has found it out."""
        return self._schema

    def begin_with(self, stored: pa.Schema | None) -> None:
        """Take the columns of the table for those of the events, if nothing is made of these.

        Otherwise they are inferred from the first events again, which may have other fields now. A
        merge does not store the columns that only say what becomes of a row.
        """
        spec, section = self._spec, self._spec.inputs[self._settings.input]
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
        """Have the events of some ranges written for a sink of this job id.

        Raises what a job raises, with its files removed.
        """
        batch = self._write(ranges, sink, job_id)
        if (grown := self._grown_schema(batch)) is not None:
            batch.discard()
            log.info("new fields: %s", ", ".join(set(grown.names) - set(self._schema_names)))
            self._schema = grown
            batch = self._write(ranges, sink, job_id)
        if self._settings.on_bad_row == "stop" and batch.bad_rows:
            batch.discard()
            first = batch.bad_rows[0]
            raise BadRowError(
                f"{first.file}, offset {first.line}: {first.reason}; nothing of its batch was "
                'committed: set stream.on_bad_row to "dead_letter" or "skip" to go on without it'
            )
        return batch

    def _write(self, ranges: tuple[OffsetRange, ...], sink: Sink, job_id: str) -> WrittenBatch:
        batch = self._writer.write(ranges, self._schema, sink, job_id)
        self._schema = batch.schema
        return batch

    @property
    def _schema_names(self) -> list[str]:
        return [] if self._schema is None else list(self._schema.names)

    def _grown_schema(self, batch: WrittenBatch) -> pa.Schema | None:
        """Return the schema with new fields of a batch's events, if these are to be columns."""
        section = self._spec.inputs[self._settings.input]
        evolves = self._spec.output.schema == "evolve" and section.columns is None
        is_json = section.format == "json" and section.envelope == "none"
        if self._schema is None or not (evolves and is_json and batch.bad_rows):
            return None
        reserved = METADATA.names if section.metadata else ()
        return with_new_fields(self._schema, batch.bad_rows, reserved)
