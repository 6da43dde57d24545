"""Arrow columns for the schemas of Kafka Connect that json messages carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mrflight.errors import InputError

_TYPES = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"

LOGICAL_TYPES = {
    "io.debezium.time.Date": pa.date32(),
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "io.debezium.time.Timestamp": pa.timestamp("ms"),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": pa.timestamp("ns"),
    "io.debezium.time.ZonedTimestamp": pa.timestamp("us", "UTC"),
}
"""Logical types that have columns of their own. Times of day stay numbers, as Delta has no type for
them."""

_MAX_PRECISION = 38


class UnreadableColumn:
    """A column that cannot be read, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def row_columns(envelope: Mapping[str, Any]) -> dict[str, pa.DataType | UnreadableColumn]:
    """Return the columns of ``after`` in the schema of an envelope; none if it has no such field.

    Raises KeyError, TypeError and AttributeError for what is no schema.
    """
    for field in envelope["fields"]:
        if field["field"] == "after":
            return {each["field"]: _column(each) for each in field["fields"]}
    return {}


def readable(columns: Mapping[str, pa.DataType | UnreadableColumn], name: str) -> pa.Schema:
    """Return the columns of an input; raise InputError for the first that cannot be read."""
    for column, kind in columns.items():
        if isinstance(kind, UnreadableColumn):
            raise InputError(f"inputs.{name}: the column {column!r} {kind.reason}")
    return pa.schema(list(columns.items()))


def scale_varies() -> UnreadableColumn:
    """Return the reason for a decimal with a scale of its own in each row."""
    return UnreadableColumn(
        "is a decimal whose scale differs from row to row (VariableScaleDecimal), which no column "
        "has; give it a precision and a scale in the database, set decimal.handling.mode of "
        "Debezium to string or double, or leave it out with columns"
    )


def _column(field: Mapping[str, Any]) -> pa.DataType | UnreadableColumn:
    name = field.get("name")
    if name == VARIABLE_SCALE_DECIMAL:
        return scale_varies()
    if name == DECIMAL:
        return _decimal(field)
    return LOGICAL_TYPES[name] if name in LOGICAL_TYPES else _nested(field)


def _nested(field: Mapping[str, Any]) -> pa.DataType | UnreadableColumn:
    """Return a type without the logical types and the base64 within it."""
    match kind := field["type"]:
        case "array":
            items = _within(field["items"])
            return items if isinstance(items, UnreadableColumn) else pa.list_(items)
        case "struct":
            return _struct(field)
        case "map":
            return UnreadableColumn("is a map, which json has no columns for; leave it out")
    return _TYPES[kind]


def _struct(field: Mapping[str, Any]) -> pa.DataType | UnreadableColumn:
    fields = []
    for each in field["fields"]:
        kind = _within(each)
        if isinstance(kind, UnreadableColumn):
            return kind
        fields.append((each["field"], kind))
    return pa.struct(fields)


def _within(field: Mapping[str, Any]) -> pa.DataType | UnreadableColumn:
    return pa.string() if field["type"] == "bytes" else _nested(field)


def _decimal(field: Mapping[str, Any]) -> pa.DataType | UnreadableColumn:
    parameters = field.get("parameters") or {}
    precision = int(parameters.get("connect.decimal.precision", _MAX_PRECISION))
    scale = int(parameters.get("scale", 0))
    if not 1 <= precision <= _MAX_PRECISION or not 0 <= scale <= precision:
        return UnreadableColumn(
            f"is a decimal of precision {precision} and scale {scale}, and a table has at most "
            f"{_MAX_PRECISION} digits; set decimal.handling.mode of Debezium to string, or leave "
            "it out with columns"
        )
    return pa.decimal128(precision, scale)
