"""Messages that are change events: each is one row, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.config.change_events import CHANGE_COLUMNS, DELETED, OPERATION
from mrflight.sources.kafka.changes.change import DELETE, Change
from mrflight.sources.kafka.formats.message_format import DecodedRows
from mrflight.sources.kafka.messages import METADATA, Messages


class Envelope(Protocol):
    """Takes rows out of messages, and decodes them. It is frozen and picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def unpack(self, value: bytes, key: bytes | None) -> Change[Any] | None:
        """Return the change in a message, or None if it has none; raise ValueError if it is bad."""

    def decode(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return the rows of some changes, at least one; raise ValueError if one is bad."""

    def explain(self, row: Any, reason: str) -> str:
        """Return why a row is bad, and what to do; ``reason`` is what `decode` raised."""


@dataclass(frozen=True)
class ChangeFormat:
    """The rows of an envelope, with `CHANGE_COLUMNS`.

    Tombstones, heartbeats and marks of transactions are no rows.
    """

    envelope: Envelope

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows without those that the envelope adds."""
        return self.envelope.schema

    @property
    def reads_nulls(self) -> bool:
        return True

    def decode(self, values: pa.BinaryArray) -> DecodedRows:
        return self._decoded([(each, None) for each in values.to_pylist()])

    def decode_messages(self, messages: Messages) -> DecodedRows:
        """Return the rows of messages, in their order; raise ValueError if one is bad."""
        pairs = zip(messages.values.to_pylist(), messages.keys.to_pylist(), strict=True)
        return self._decoded(list(pairs))

    def explain(self, value: bytes, reason: str) -> str:
        try:
            change = self.envelope.unpack(value, None)
        except ValueError:
            return reason
        return reason if change is None else self.envelope.explain(change.row, reason)

    def _decoded(self, messages: Sequence[tuple[bytes | None, bytes | None]]) -> DecodedRows:
        changes = [
            None if value is None else self.envelope.unpack(value, key) for value, key in messages
        ]
        found = [each for each in changes if each is not None]
        counts = np.array([each is not None for each in changes], np.int64)
        schema = pa.schema([*self.schema, *CHANGE_FIELDS])
        if not found:
            return DecodedRows(empty_batch(schema), counts)
        rows = self.envelope.decode([each.row for each in found])
        operations = pa.array([each.operation for each in found], pa.string())
        deleted = pa.array([each.operation == DELETE for each in found], pa.bool_())
        columns = [*(rows.column(name) for name in self.schema.names), operations, deleted]
        return DecodedRows(pa.RecordBatch.from_arrays(columns, schema=schema), counts)


CHANGE_FIELDS = pa.schema([(OPERATION, pa.string()), (DELETED, pa.bool_())])

ADDED_FIELDS = pa.schema(
    [
        CHANGE_FIELDS.field(name) if name in CHANGE_FIELDS.names else METADATA.field(name)
        for name in CHANGE_COLUMNS
    ]
)
"""The columns that change events have beside those of their rows."""
