"""Columns as Debezium writes them to json: dates and times as numbers, bytes in base64."""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal

import pyarrow as pa


def encoded_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that json has for a column of a type.

    A date is the number of days since 1970, and a timestamp without a zone that of its unit. Those
    with a zone are text, and decimals and bytes base64.
    """
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64() if kind.tz is None else pa.string()
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
    if pa.types.is_decimal(kind) or _is_binary(kind):
        return pa.string()
    return kind


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that json has for those of ``schema``."""
    return pa.schema([(each.name, encoded_type(each.type)) for each in schema])


def decode_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of `encoded_schema` with the columns of ``schema``.

    Raises ValueError that names the column.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        try:
            columns.append(column if column.type == field.type else _decoded(column, field.type))
        except (ValueError, binascii.Error) as error:
            reason = f"the column {field.name!r} cannot be read as {field.type}: {error}"
            raise ValueError(reason) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(column.type):
        return column.view(kind)
    if pa.types.is_timestamp(kind):
        return column.cast(kind)
    data = [None if each is None else _unbase64(each) for each in column.to_pylist()]
    if not pa.types.is_decimal(kind):
        return pa.array(data, kind)
    return pa.array([None if each is None else to_decimal(each, kind.scale) for each in data], kind)


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(
            f"{text[:40]!r} is not base64, which Debezium writes by default; it is text with "
            "decimal.handling.mode = string or binary.handling.mode = hex: set the type string, "
            "and cast it in sql"
        ) from error


def to_decimal(data: bytes, scale: int) -> Decimal:
    """Return the number of a Connect decimal: the bytes of a whole number, highest first."""
    whole = int.from_bytes(data, "big", signed=True)
    return Decimal((whole < 0, tuple(map(int, str(abs(whole)))), -scale))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
