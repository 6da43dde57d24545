"""Decides the columns of change events that are Avro records, by the schema of their envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError
from mrflight.sources.kafka.changes.avro_envelope import AvroEnvelope
from mrflight.sources.kafka.changes.change_format import ChangeFormat
from mrflight.sources.kafka.changes.connect_schema import VARIABLE_SCALE_DECIMAL, scale_varies
from mrflight.sources.kafka.formats.avro_format import newest_schemas, open_avro_format
from mrflight.sources.kafka.formats.avro_schema import avro_columns, parse_avro_schema
from mrflight.sources.kafka.messages import Messages

_LOGICAL = {
    "io.debezium.time.Date": ("int", "date"),
    "org.apache.kafka.connect.data.Date": ("int", "date"),
    "io.debezium.time.Timestamp": ("long", "local-timestamp-millis"),
    "org.apache.kafka.connect.data.Timestamp": ("long", "local-timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "local-timestamp-micros"),
    "io.debezium.time.NanoTimestamp": ("long", "local-timestamp-nanos"),
    "io.debezium.time.ZonedTimestamp": ("long", "timestamp-micros"),
}
"""What Avro calls the logical types of Connect that have columns of their own."""


def open_avro_changes(
    name: str,
    spec: InputSpec,
    schema: pa.Schema | None,
    writer: str | None,
    sample: Sequence[Messages],
) -> ChangeFormat:
    """Return the format of an input; ``writer`` is the text of the envelope's schema, if it is set.

    Without it, the columns are those of the newest envelope among the first messages.
    """
    columns = spec.columns
    if schema is None:
        where = f"inputs.{name}.schema"
        if writer is not None:
            row = _row_record(parse_avro_schema(writer, where))
        else:
            where = f"inputs.{name}.registry: the schema"
            row = _newest_row(name, spec, sample, where)
        if row is None:
            raise InputError(
                f"{where} is not that of an envelope of Debezium, which has the fields before and "
                "after with the record of a row"
            )
        schema = _columns(name, row, columns, where)
    return ChangeFormat(AvroEnvelope(open_avro_format(name, spec, schema, writer, ())))


def _newest_row(
    name: str, spec: InputSpec, sample: Sequence[Messages], where: str
) -> Mapping[str, Any] | None:
    """Return the record of the newest schema that is an envelope; marks of the stream are not."""
    for text in newest_schemas(name, spec, sample):
        row = _row_record(parse_avro_schema(text, where))
        if row is not None:
            return row
    return None


def _row_record(envelope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record of ``after``, which ``before`` may define; None if there is none."""
    space = envelope.get("namespace")
    fields = {each["name"]: each["type"] for each in envelope.get("fields", ())}
    if "op" not in fields:
        return None
    for place in ("after", "before"):
        kinds = fields.get(place)
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(kind, dict) and kind.get("type") == "record":
                return {"namespace": space, **kind} if space else kind
    return None


def _columns(
    name: str, row: Mapping[str, Any], columns: Sequence[str] | None, where: str
) -> pa.Schema:
    fields = {each["name"]: each for each in row["fields"]}
    for column in columns or ():
        if column not in fields:
            raise ColumnNotFoundError.among(
                column, list(fields), f"inputs.{name}.columns: the schema of the messages"
            )
    named = _TypesInPlace()
    all_fields = [
        {**each, "type": named.of(each["type"], column)} for column, each in fields.items()
    ]
    found = avro_columns({**row, "fields": all_fields}, where)
    selected = list(columns or fields)
    for column in selected:
        if column in named.unreadable:
            raise InputError(f"inputs.{name}: the column {column!r} {scale_varies().reason}")
    return pa.schema([found.field(column) for column in selected])


class _TypesInPlace:
    """Gives types of Connect the names that Avro has for them."""

    def __init__(self) -> None:
        self.unreadable: set[str] = set()

    def of(self, kind: Any, column: str) -> Any:
        if isinstance(kind, list):
            return [self.of(each, column) for each in kind]
        if isinstance(kind, str):
            if kind.rpartition(".")[2] == VARIABLE_SCALE_DECIMAL.rpartition(".")[2]:
                self.unreadable.add(column)
            return kind
        if kind.get("connect.name") == VARIABLE_SCALE_DECIMAL:
            self.unreadable.add(column)
        found = _LOGICAL.get(kind.get("connect.name", ""))
        return kind if found is None else {"type": found[0], "logicalType": found[1]}
