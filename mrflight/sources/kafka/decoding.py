"""Decodes messages to rows with their metadata, and sorts out those that are bad."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.errors import BadRowError
from mrflight.sources.bad_row_search import how_to_skip
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.kafka.formats.message_format import (
    BadValuesError,
    DecodedRows,
    KeyedFormat,
    MessageFormat,
)
from mrflight.sources.kafka.messages import METADATA, Messages
from mrflight.sources.kafka.rejected_message import describe_rejected, find_rejected


class MessageDecoder:
    """Decodes messages of an input to rows of ``schema``.

    Its columns are some of the format's and of `METADATA`.
    """

    def __init__(
        self, input_name: str, format: MessageFormat, schema: pa.Schema, with_metadata: bool
    ) -> None:
        self._input, self._format, self._schema = input_name, format, schema
        self._with_metadata = with_metadata
        self._metadata = [name for name in schema.names if with_metadata and name in METADATA.names]

    def decode(self, messages: Messages, bad_rows: BadRowLog | None) -> pa.RecordBatch:
        """Return the rows of messages.

        Raises BadRowError for a message that cannot be decoded, unless ``bad_rows`` takes it.
        """
        has_nulls = messages.values.null_count > 0 and not self._format.reads_nulls
        if not has_nulls:
            try:
                return self._with_columns(messages, self._rows(messages))
            except ValueError as error:
                failure: ValueError | None = error
        else:
            failure = None
        return self._decode_apart(messages, bad_rows, failure)

    def _decode_apart(
        self, messages: Messages, bad_rows: BadRowLog | None, failure: ValueError | None
    ) -> pa.RecordBatch:
        """Decode the messages that have a value and are not bad, and then add the tombstones."""
        is_null = messages.values.is_null().to_numpy(zero_copy_only=False)
        if self._format.reads_nulls:
            is_null[:] = False
        filled = np.flatnonzero(~is_null)
        rest = messages.take(pa.array(filled))
        # After a failure, there are no messages without a value that would count here.
        if isinstance(failure, BadValuesError):
            found = failure.reasons
        else:
            found = find_rejected(rest, self._rows)
        reasons: dict[int, str | None] = {int(filled[i]): why for i, why in found.items()}
        if not self._with_metadata:
            reasons |= {int(i): None for i in np.flatnonzero(is_null)}
        reasons = dict(sorted(reasons.items()))
        if reasons and bad_rows is None:
            raise self._bad_row(messages, reasons) from failure
        if reasons and bad_rows is not None:
            describe = partial(describe_rejected, messages, reasons, self._format)
            bad_rows.add(len(reasons), describe)
        is_kept = np.ones(len(messages), bool)
        is_kept[list(reasons)] = False
        return self._decode_kept(messages.take(pa.array(np.flatnonzero(is_kept))))

    def _rows(self, messages: Messages) -> DecodedRows:
        """Return the rows of messages that the format reads; raises ValueError."""
        if isinstance(self._format, KeyedFormat):
            return self._format.decode_messages(messages)
        return self._format.decode(messages.values)

    def _decode_kept(self, messages: Messages) -> pa.RecordBatch:
        """Decode messages of which each can be decoded, or is a tombstone that becomes a row."""
        is_filled = messages.values.is_valid().to_numpy(zero_copy_only=False)
        if is_filled.all() or self._format.reads_nulls:
            read = messages
        else:
            read = messages.take(pa.array(np.flatnonzero(is_filled)))
        try:
            rows = self._rows(read)
        except ValueError as error:  # messages of which each can be read contradict each other
            raise BadRowError(
                f"inputs.{self._input}: messages from {self._place(messages, 0)} on contradict "
                f"each other: {error}"
            ) from error
        if len(read) < len(messages):
            rows = _with_tombstones(rows, is_filled)
        return self._with_columns(messages, rows)

    def _with_columns(self, messages: Messages, rows: DecodedRows) -> pa.RecordBatch:
        """Return the columns of the schema, some of which are metadata."""
        if not self._metadata:
            return _selected(rows.batch, self._schema)
        if rows.counts is not None:
            repeated = np.repeat(np.arange(len(messages)), rows.counts)
            messages = messages.take(pa.array(repeated))
        columns = dict(zip(self._metadata, messages.metadata(self._metadata), strict=True))
        arrays = [columns.get(f.name) for f in self._schema]
        arrays = [
            rows.batch.column(field.name) if array is None else array
            for field, array in zip(self._schema, arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _bad_row(self, messages: Messages, reasons: dict[int, str | None]) -> BadRowError:
        index, failure = next(iter(reasons.items()))
        (rejected,) = describe_rejected(messages, {index: failure}, self._format)
        return BadRowError(
            f"{self._place(messages, index)}: {rejected.reason}{how_to_skip(self._input)}"
        )

    def _place(self, messages: Messages, index: int) -> str:
        return f"{messages.place}, offset {messages.offsets[index].as_py()}"


def _selected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.names == schema.names:
        return batch
    return batch.select(schema.names) if len(schema) else empty_batch(schema)


def _with_tombstones(
    rows: DecodedRows, is_filled: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> DecodedRows:
    """Return the rows with a row of nulls for each message without a value."""
    counts = np.ones(len(is_filled), np.int64)
    if rows.counts is not None:
        counts[is_filled] = rows.counts
    is_row = np.repeat(is_filled, counts)
    places = np.cumsum(is_row) - 1
    batch = rows.batch.take(pa.array(places, mask=~is_row))
    return DecodedRows(batch, counts)
