"""Makes the rows of a live stream's tail of messages: decodes and maps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import empty_batch
from mrflight.shuffle.wire.tail_protocol import OFFSET_COLUMN
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Reader, Split
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.kafka_reader import KafkaReader
from mrflight.sources.kafka.messages import METADATA, Messages
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.tail_changes import TailChanges

_OFFSET = METADATA.field("_offset")


class TailRows:
    """Decodes messages to the rows that a batch of the stream makes of them."""

    def __init__(
        self, reader: KafkaReader, row_map: RowMap | None, changes: TailChanges | None = None
    ) -> None:
        """``changes`` is set if the stream merges the rows into its table."""
        self._reader = reader
        self._map = row_map
        self._changes = changes
        self._names = list(reader.schema.names)
        has_own = not reader.metadata and _OFFSET.name in self._names
        self._knows_offsets = row_map is None and not has_own
        schema = reader.schema
        if self._knows_offsets and _OFFSET.name not in self._names:
            schema = schema.append(_OFFSET)
        self._decoder = MessageDecoder(
            reader.settings.input,
            reader.format,
            schema,
            reader.metadata or self._knows_offsets,
        )

    def of(self, messages: Messages) -> pa.RecordBatch:
        """Return the rows of messages, with the column of offsets if each has one.

        Messages that cannot be decoded are left out if the stream skips them; BadRowError is raised
        otherwise.
        """
        if not self._reader.metadata and not self._reader.format.reads_nulls:
            has_value = messages.values.is_valid().to_numpy(zero_copy_only=False)
            messages = messages.take(pa.array(np.flatnonzero(has_value)))
        log = None if self._reader.bad_rows is None else BadRowLog()
        batch = self._decoder.decode(messages, log)
        if not self._knows_offsets:
            return self._marked(self._mapped(batch))
        rows = self._marked(_canonical(batch.select(self._names)))
        return rows.append_column(OFFSET_COLUMN, batch[_OFFSET.name])

    def _marked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows if self._changes is None else self._changes.mark(rows)

    def _mapped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return mapped_rows(batch, f"kafka://{self._reader.settings.input}", self._map)


def mapped_rows(batch: pa.RecordBatch, path: str, row_map: RowMap | None) -> pa.RecordBatch:
    """Return what a map makes of rows; without columns if that is nothing."""
    split = Split(path, 0, 1, batch.nbytes)
    mapped = list(Mapper(_Held(batch), split, row_map).batches())
    if not mapped:
        return empty_batch(pa.schema([]))
    return pa.concat_batches([_canonical(each) for each in mapped])


def _canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    return to_canonical(batch, canonical_schema(batch.schema))


@dataclass(frozen=True)
class _Held(Reader):
    """Gives a batch to a `Mapper`."""

    batch: pa.RecordBatch

    @property
    def schema(self) -> pa.Schema:  # type: ignore[override]
        return self.batch.schema

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        yield self.batch
