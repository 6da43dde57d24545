"""Decides the columns of change events that are json: by their schema, or by a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from msgspec import structs

from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError
from mrflight.sources.kafka.changes.change_format import ChangeFormat
from mrflight.sources.kafka.changes.connect_schema import readable, row_columns
from mrflight.sources.kafka.changes.encoded_columns import encoded_schema, encoded_type
from mrflight.sources.kafka.changes.json_envelope import JsonEnvelope, schema_of, unpack_json
from mrflight.sources.kafka.formats.json_columns import open_json_format
from mrflight.sources.kafka.formats.text_types import check_types
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.type_names import parse_types


def open_json_changes(
    name: str, spec: InputSpec, schema: pa.Schema | None, sample: Sequence[Messages]
) -> ChangeFormat:
    """Return the format of an input, whose columns are those of ``schema`` if that is given.

    Otherwise they are those of the newest schema that a message of the sample has, and without one
    they are inferred from the rows, with dates and times as the numbers that they are in json.
    """
    if schema is None:
        schema = _of_messages(name, spec, sample)
    if schema is None:
        schema = _inferred(name, spec, sample)
    elif spec.columns is not None:
        schema = pa.schema([schema.field(column) for column in spec.columns])
    # The types of a schema need no declaration: those of json follow from it.
    plain = structs.replace(spec, types={})
    rows = open_json_format(name, plain, encoded_schema(schema), ())
    check_types(name, rows, b"{}")
    declared = frozenset(schema.names if spec.schema != "strict" else spec.types)
    return ChangeFormat(JsonEnvelope(replace(rows, declared=declared), schema))


def _of_messages(name: str, spec: InputSpec, sample: Sequence[Messages]) -> pa.Schema | None:
    document = _newest(sample)
    if document is None or not document.get("fields"):
        return None
    try:
        columns = row_columns(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"inputs.{name}: the schema in a message cannot be read as columns: it lacks or mixes "
            f"up {error}; set value.converter.schemas.enable = false, and inputs.{name}.types"
        ) from error
    if not columns:
        return None
    for column in spec.columns or ():
        if column not in columns:
            where = f"inputs.{name}.columns: the schema of the messages"
            raise ColumnNotFoundError.among(column, list(columns), where)
    selected = {each: columns[each] for each in spec.columns or columns}
    declared = parse_types(spec.types, name)
    plain = {n: k for n, k in declared.items() if isinstance(selected.get(n), pa.DataType)}
    for column, kind in plain.items():
        _check_declared(name, column, kind, selected[column])
    return readable(selected | plain, name)


def _check_declared(name: str, column: str, kind: pa.DataType, found: Any) -> None:
    """Raise InputError for a type with which json would be read as what it is not."""
    is_encoded = encoded_type(kind) != kind or encoded_type(found) != found
    if is_encoded and kind != found:
        raise InputError(
            f"inputs.{name}.types.{column}: the schema of the messages says {found}, not {kind}; "
            "remove it, and cast the column in sql"
        )


def _newest(sample: Sequence[Messages]) -> Any:
    """Return the schema of the last message that has one; None if none has."""
    found: list[tuple[int, Any]] = []
    for messages in sample:
        last = _last_schema(messages)
        if last is not None:
            found.append(last)
    return max(found, key=lambda each: each[0])[1] if found else None


def _last_schema(messages: Messages) -> tuple[int, Any] | None:
    for index in range(len(messages) - 1, -1, -1):
        value = messages.values[index].as_py()
        try:
            document = None if value is None else schema_of(value)
            is_change = document is not None and unpack_json(value, None, frozenset()) is not None
        except ValueError:
            continue
        if is_change:
            return messages.timestamps[index].as_py(), document
    return None


def _inferred(name: str, spec: InputSpec, sample: Sequence[Messages]) -> pa.Schema:
    declared = parse_types(spec.types, name)
    encoded = {column: str(encoded_type(kind)) for column, kind in declared.items()}
    rows = [found for each in sample if (found := _rows_of(each)) is not None]
    plain = structs.replace(spec, types=encoded)
    found = open_json_format(name, plain, None, rows).schema
    return pa.schema(
        [(each.name, declared.get(each.name, _as_written(each.type))) for each in found]
    )


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Return text for what looks like a time, which may be any text in the database."""
    return pa.string() if pa.types.is_temporal(kind) else kind


def _rows_of(messages: Messages) -> Messages | None:
    """Return messages with the rows of changes in place of their envelopes."""
    rows: list[bytes] = []
    kept: list[int] = []
    for index, value in enumerate(messages.values.to_pylist()):
        try:
            change = None if value is None else unpack_json(value, None, frozenset())
        except ValueError:
            continue
        if change is not None:
            rows.append(change.row)
            kept.append(index)
    if not rows:
        return None
    return replace(messages.take(pa.array(kept)), values=pa.array(rows, pa.binary()))
