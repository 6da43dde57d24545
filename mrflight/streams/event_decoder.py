"""Decodes events of a stream in this process, for commands that look at a few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import InputError
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats.opening import open_format
from mrflight.sources.kafka.messages import METADATA, Messages
from mrflight.sources.kafka.rejected_message import RejectedMessage
from mrflight.streams.stream_job import StreamJob


@dataclass(frozen=True)
class Decoded:
    """Events of one partition, decoded."""

    rows: pa.RecordBatch
    rejected: Sequence[RejectedMessage]


class EventDecoder:
    """Decodes events as the job does, up to its maps."""

    def __init__(self, job: StreamJob, decoder: MessageDecoder, schema: pa.Schema) -> None:
        self._decoder = decoder
        self.schema = schema
        """The columns of the events, with the metadata."""

    @classmethod
    def of(
        cls, job: StreamJob, sample: Callable[[], Sequence[Messages]] = lambda: ()
    ) -> EventDecoder:
        """Return the decoder of a stream; raises what `open_format` raises.

        Columns that the job does not tell are those of the table, if its rows are the events, or
        else are inferred from the ``sample``.
        """
        name, spec = job.settings.input, job.input
        columns = [each for each in spec.columns or () if each not in METADATA.names]
        spec = replace(spec, columns=columns or None)
        format = open_format(name, spec, job.folder, _stored(job), sample)
        kept = [format.schema.field(each) for each in columns or format.schema.names]
        schema = pa.schema([*kept, *(METADATA if spec.metadata else ())])
        return cls(job, MessageDecoder(name, format, schema, spec.metadata), schema)

    def decode(self, messages: Messages) -> Decoded:
        """Decode messages; raises BadRowError if some contradict each other."""
        log = _Rejected()
        rows = self._decoder.decode(messages, log)
        return Decoded(rows, log.rejected)


def _stored(job: StreamJob) -> pa.Schema | None:
    """Return the columns of the table if these are those of the events, and the job has none."""
    spec = job.input
    if spec.types or spec.schema != "strict" or spec.format in ("raw", "protobuf"):
        return None
    if spec.registry is not None or job.shapes_rows:
        return None
    table = job.open_table()
    if table is None:
        return None
    fields = [each for each in table.schema if each.name not in METADATA.names]
    if not fields:
        raise InputError(f"{table.url} has no columns of events")
    return pa.schema(fields)


class _Rejected(BadRowLog):
    """Keeps the messages that cannot be decoded."""

    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.rejected: list[RejectedMessage] = []

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        self.rejected += [each for each in describe() if isinstance(each, RejectedMessage)]
