"""Change events that are Avro records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from mrflight.sources.kafka.changes.change import DELETE, Change, check_operation, no_row
from mrflight.sources.kafka.formats.avro_format import AvroFormat

Row = dict[str, Any]


@dataclass(frozen=True)
class AvroEnvelope:
    """The records in ``after`` and ``before``."""

    records: AvroFormat
    """Reads the envelopes; its schema are the columns of the rows."""

    @property
    def schema(self) -> pa.Schema:
        return self.records.schema

    @cached_property
    def _zoned(self) -> tuple[str, ...]:
        """The columns of times with a zone, which Debezium writes as text."""
        kinds = [each for each in self.schema if pa.types.is_timestamp(each.type)]
        return tuple(each.name for each in kinds if each.type.tz is not None)

    def unpack(self, value: bytes, key: bytes | None) -> Change[Row] | None:
        record = self.records.record(value)
        if _is_about_the_stream(record):
            return None
        operation = check_operation(record.get("op"))
        row = record.get("before" if operation == DELETE else "after")
        if operation == DELETE:
            row = self._with_key(row, key)
        if not isinstance(row, dict):
            raise no_row(operation)
        return Change(operation, row)

    def decode(self, rows: Sequence[Row]) -> pa.RecordBatch:
        try:
            zoned = [self._with_times(each) for each in rows] if self._zoned else list(rows)
            return pa.RecordBatch.from_pylist(zoned, self.schema)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error

    def explain(self, row: Row, reason: str) -> str:
        return f"the row in the message does not fit the columns: {reason}"

    def _with_key(self, row: Row | None, key: bytes | None) -> Row | None:
        """Return a row with the columns that it lacks, or that are null in it, from the key."""
        is_complete = row is not None and all(row.get(name) is not None for name in row)
        if key is None or is_complete or self.records.registry is None:
            return row
        try:
            given = replace(self.records, writer=None).record(key)
        except ValueError:  # it is of another format
            return row
        known = row or {}
        missing = {
            name: value
            for name, value in given.items()
            if name in self.schema.names and known.get(name) is None
        }
        return {**known, **missing} if missing else row

    def _with_times(self, row: Row) -> Row:
        texts = {name: row[name] for name in self._zoned if isinstance(row.get(name), str)}
        return {**row, **{name: datetime.fromisoformat(text) for name, text in texts.items()}}

    def __reduce__(self) -> tuple[type[AvroEnvelope], tuple[object, ...]]:
        return type(self), (self.records,)


def _is_about_the_stream(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a heartbeat, or the begin or the end of a transaction."""
    if record.get("op") == "m":  # a message that an application wrote into PostgreSQL's log
        return True
    is_mark = "ts_ms" in record and record.get("status") in ("BEGIN", "END")
    return is_mark or set(record) == {"ts_ms"}
