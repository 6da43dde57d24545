"""Reads ranges of offsets of Kafka as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mrflight.events.attempt_counts import COUNTS
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Reader, Split
from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats.message_format import MessageFormat
from mrflight.sources.kafka.offset_range import range_of
from mrflight.sources.kafka.range_reader import SILENCE_TIMEOUT_S, read_range
from mrflight.sources.packed_reader import join_batches


@dataclass(frozen=True)
class KafkaReader(Reader):
    """Consumes the ranges of its splits, and decodes the messages.

    The consumers stay in the process for the next split. Raises what `read_range` raises, and
    BadRowError with the partition and the offset of a message that cannot be decoded.
    """

    settings: ClientSettings
    format: MessageFormat
    schema: pa.Schema
    """The columns that are read: some of the format's, and of the metadata."""
    metadata: bool
    """True if `schema` may have columns of the metadata."""
    bad_rows: BadRowLog | None = None
    """Takes the messages that cannot be decoded; None if these are errors."""
    timeout_s: float = SILENCE_TIMEOUT_S
    is_cut: bool = False
    """True if the splits are as large as they should be."""

    @property
    def reads_packs(self) -> bool:
        return True

    def with_bad_rows(self, log: BadRowLog) -> KafkaReader:
        return self if self.bad_rows is None else replace(self, bad_rows=log)

    def select(self, columns: Sequence[str]) -> KafkaReader:
        selected = pa.schema([self.schema.field(name) for name in columns])
        return replace(self, schema=selected)

    def divide(self, split: Split, count: int) -> list[Split]:
        return [split] if self.is_cut else split.divide(count)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return join_batches(self._batches(split))

    def _batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        name, with_headers = self.settings.input, self.metadata and "_headers" in self.schema.names
        decoder = MessageDecoder(name, self.format, self.schema, self.metadata)
        for piece in split.pieces:
            found = read_range(self.settings, range_of(piece), with_headers, self.timeout_s)
            for messages in found:
                COUNTS.input_bytes += messages.size_bytes
                batch = decoder.decode(messages, self.bad_rows)
                if batch.num_rows:
                    yield batch
