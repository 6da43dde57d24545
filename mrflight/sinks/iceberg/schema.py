"""The schema that rows are stored with in an Iceberg table. Workers load no pyiceberg for it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from mrflight.compute.types import canonical_type
from mrflight.errors import OutputError
from mrflight.sinks.parts.stored_schema import TableSchema
from mrflight.sinks.parts.stored_type import UnstorableTypeError

MAX_DECIMAL_DIGITS = 38

_WIDER = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_KEPT = {
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.time64("us"),
}


class IcebergSchema(TableSchema, frozen=True):
    """The requirements of an Iceberg table on the schema of its rows. Picklable."""

    partitioned: pa.Schema | None = None
    """The columns by which files of the table are partitioned that an overwrite replaces."""

    def to_stored(self, schema: pa.Schema) -> pa.Schema:
        stored = super().to_stored(schema)
        for field in self.partitioned or ():
            kind = stored.field(field.name).type if field.name in stored.names else None
            if kind != field.type:
                found = "missing" if kind is None else kind
                raise OutputError(
                    f"{self.url} cannot be overwritten: its files are partitioned by column "
                    f"{field.name!r} ({field.type}), which pyiceberg needs to remove them, and in "
                    f"the result it is {found}; add it in the map, or write to another table"
                )
        return stored

    def _check_names(self, names: Sequence[str]) -> None:
        seen: dict[str, str] = {}
        for name in names:
            if not name:
                raise OutputError(f"{self.url}: a column has no name; give it one in the map")
            if (other := seen.setdefault(name.lower(), name)) != name or names.count(name) > 1:
                raise OutputError(
                    f"{self.url}: columns {other!r} and {name!r} have the same name to readers "
                    "that do not tell upper from lower case; rename one"
                )

    def _stored_type(self, field: pa.Field) -> pa.DataType:
        try:
            return iceberg_type(field.type)
        except UnstorableTypeError as error:
            raise self._refused(field, str(error)) from None


def iceberg_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the Iceberg type that holds every value of ``kind``.

    Nanoseconds become microseconds, and only the rows show whether that loses anything. Raises
    UnstorableTypeError.
    """
    return canonical_type(kind, _leaf, keep_fixed_size=False)


def _leaf(kind: pa.DataType) -> pa.DataType:
    if kind in _KEPT or types.is_fixed_size_binary(kind):
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    raise UnstorableTypeError(f"Iceberg has no such type; {_advice(kind)} in the map")


def _advice(kind: pa.DataType) -> str:
    if types.is_null(kind):
        return "give it a type, cast(NULL as string) in sql"
    if types.is_decimal(kind):
        return f"cast it to a decimal of at most {MAX_DECIMAL_DIGITS} digits, or to string"
    if types.is_duration(kind):
        return "cast it to int64 or string"
    return "cast it to another type, such as string"
