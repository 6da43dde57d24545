"""The types of DuckLake's columns, and the Arrow types that they are written and read as."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute.types import canonical_type

MAX_DECIMAL_DIGITS = 38
_SQL = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}
_WIDER = {pa.float16(): pa.float32(), pa.date64(): pa.date32()}
_OF_LAKE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "varchar": pa.string(),
    "json": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamp_us": pa.timestamp("us"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""Arrow's types by the names in the specification of DuckLake 1.0."""
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


class UnknownLakeTypeError(Exception):
    """A type that cannot be converted. The message says which one."""


class LakeColumn(msgspec.Struct, frozen=True):
    """A column of a table, or of the column that is its parent, as the catalog describes it."""

    id: int
    name: str
    type: str
    nullable: bool
    parent: int | None


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that holds every value of ``kind`` in DuckLake.

    Times and timestamps have microseconds. Raises UnknownLakeTypeError.
    """
    return canonical_type(kind, _stored_leaf, keep_fixed_size=False)


def _stored_leaf(kind: pa.DataType) -> pa.DataType:
    if kind in _SQL:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    advice = "cast it to another type, such as string"
    if types.is_null(kind):
        advice = "give it a type, cast(NULL as string) in sql"
    raise UnknownLakeTypeError(f"DuckLake has no such type; {advice}, in the map")


def sql_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of a type that `stored_type` returned."""
    if types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if types.is_struct(kind):
        fields = ", ".join(f"{identifier(each.name)} {sql_type(each.type)}" for each in kind)
        return f"STRUCT({fields})"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _SQL[kind]


def arrow_schema(columns: Sequence[LakeColumn]) -> pa.Schema:
    """Return the schema of a table, whose columns are in their order.

    Raises UnknownLakeTypeError, which names the column.
    """
    children: dict[int | None, list[LakeColumn]] = {}
    for column in columns:
        children.setdefault(column.parent, []).append(column)

    def field(column: LakeColumn) -> pa.Field:
        inner = [field(each) for each in children.get(column.id, ())]
        try:
            kind = _nested(column.type, inner)
        except (KeyError, IndexError):
            raise UnknownLakeTypeError(
                f"column {column.name!r} is {column.type}, which mrflight does not have"
            ) from None
        return pa.field(column.name, kind, column.nullable)

    return pa.schema([field(each) for each in children.get(None, ())])


def _nested(name: str, inner: Sequence[pa.Field]) -> pa.DataType:
    if name == "list":
        return pa.list_(inner[0].type)
    if name == "map":
        return pa.map_(inner[0].type, inner[1].type)
    if name == "struct":
        return pa.struct([(each.name, each.type) for each in inner])
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _OF_LAKE[name]


def identifier(name: str) -> str:
    """Return a name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL quotes it."""
    return "'" + text.replace("'", "''") + "'"
