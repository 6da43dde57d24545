"""Messages whose bytes are one column as they are."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.sources.kafka.formats.message_format import DecodedRows


class RawFormat(msgspec.Struct, frozen=True):
    """One binary column, ``value``; it is null for a message without a value."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("value", pa.binary())])

    @property
    def reads_nulls(self) -> bool:
        return True

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        return DecodedRows(pa.RecordBatch.from_arrays([values], schema=self.schema))

    def explain(self, value: bytes, reason: str) -> str:
        return reason
