"""Messages that are Arrow IPC streams, each with any number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mrflight.compute.inflated_size import declared
from mrflight.compute.schemas import describe_difference, empty_batch
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError
from mrflight.sources.kafka.formats.message_format import DecodedRows
from mrflight.sources.kafka.messages import Messages
from mrflight.units import format_bytes

_MAX_ROWS_BYTES = 256 << 20
"""What the rows of one message may take, as a few compressed bytes can become very many."""


@dataclass(frozen=True)
class ArrowFormat:
    """An IPC stream a message. The rows have the columns of the schema, in any order."""

    schema: pa.Schema

    @property
    def reads_nulls(self) -> bool:
        return False

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        counts = np.zeros(len(values), np.int64)
        batches: list[pa.RecordBatch] = []
        for place, value in enumerate(values):
            found = self._batches(value.as_buffer())
            counts[place] = sum(batch.num_rows for batch in found)
            batches += found
        joined = pa.Table.from_batches(batches, self.schema).combine_chunks().to_batches()
        return DecodedRows(joined[0] if joined else empty_batch(self.schema), counts)

    def explain(self, value: bytes, reason: str) -> str:
        return f"the message is not an Arrow stream of the columns of the others: {reason}"

    def _batches(self, value: pa.Buffer) -> list[pa.RecordBatch]:
        """Return the batches of a stream; raises ValueError."""
        found, size_bytes = [], 0
        try:
            if sum(each.inflated_bytes for each in declared(value)) > _MAX_ROWS_BYTES:
                raise ValueError(f"it inflates to more than {format_bytes(_MAX_ROWS_BYTES)}")
            with pa.ipc.open_stream(value) as stream:
                is_alike = stream.schema.equals(self.schema)  # a fifth of looking at each column
                if not is_alike and _missing(self.schema, stream.schema):
                    raise ValueError(describe_difference(self.schema, stream.schema))
                for batch in stream:
                    batch.validate(full=True)
                    size_bytes += batch.get_total_buffer_size()
                    if size_bytes > _MAX_ROWS_BYTES:
                        raise ValueError(f"it has more than {format_bytes(_MAX_ROWS_BYTES)}")
                    found.append(batch if is_alike else self._selected(batch))
        except (OSError, TypeError, pa.ArrowException) as error:
            raise ValueError(str(error)) from error
        return found

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(name) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def open_arrow_format(
    name: str, spec: InputSpec, schema: pa.Schema | None, sample: Sequence[Messages]
) -> ArrowFormat:
    """Return the format of an input, whose columns are those of the first stream if not given."""
    if schema is None:
        schema = next(filter(None, map(_schema_of, sample)), None)
    if schema is None:
        raise InputError(
            f"inputs.{name}: there is no message yet that is an Arrow stream, to tell the columns; "
            "start once there is one"
        )
    names = spec.columns or schema.names
    for column in names:
        if column not in schema.names:
            where = f"inputs.{name}.columns: the first message"
            raise ColumnNotFoundError.among(column, schema.names, where)
    if len(set(schema.names)) < len(schema.names):
        raise InputError(f"inputs.{name}: two columns of the first message have the same name")
    return ArrowFormat(pa.schema([pa.field(c, schema.field(c).type) for c in names]))


def _schema_of(messages: Messages) -> pa.Schema | None:
    """Return the schema of the first message that is a stream."""
    for value in messages.values.drop_null():
        try:
            with pa.ipc.open_stream(value.as_buffer()) as stream:
                return stream.schema
        except (OSError, ValueError, TypeError, pa.ArrowException):
            continue
    return None


def _missing(wanted: pa.Schema, found: pa.Schema) -> bool:
    """Return whether a stream lacks a column, or has another type for it."""
    for field in wanted:
        at = found.get_all_field_indices(field.name)
        if len(at) != 1 or found.field(at[0]).type != field.type:
            return True
    return False
