"""Arrow columns for Avro schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mrflight.errors import InputError, JobFileError

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_MAX_DEPTH = 64
_MAX_FILE_BYTES = 16 << 20


def read_schema_file(name: str, file: str, folder: Path) -> bytes:
    """Return the bytes of ``inputs.NAME.schema``, a file relative to the job file's folder."""
    path = folder / file
    try:
        with path.open("rb") as opened:
            return opened.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise JobFileError(
            f"inputs.{name}.schema: {path} cannot be read: {error.strerror}; correct the path, "
            "which is relative to the job file"
        ) from error


def parse_avro_schema(text: str | bytes, where: str) -> Mapping[str, Any]:
    """Return a record's schema as Avro's json writes it; ``where`` names it in messages."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not an Avro schema: {error}") from error
    if not isinstance(document, dict) or document.get("type") != "record":
        raise InputError(f"{where} is not the schema of an Avro record; only records have columns")
    return document


def avro_columns(document: Mapping[str, Any], where: str) -> pa.Schema:
    """Return the columns for the fields of a record.

    Unions with null are nullable; other unions raise InputError, as does a type that contains
    itself. Times with a zone are those of UTC, and uuids are strings.
    """
    try:
        record = _Types().of(document, 0)
        return pa.schema(list(record))
    except (_WrongSchemaError, KeyError, TypeError, AttributeError, ValueError) as error:
        reason = error if isinstance(error, _WrongSchemaError) else f"it lacks or mixes up {error}"
        raise InputError(f"{where} cannot be read as columns: {reason}") from error


class _WrongSchemaError(Exception):
    pass


class _Types:
    """Converts types; it knows those that were named before."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def of(self, kind: Any, depth: int, space: str = "") -> pa.DataType:
        """Return the Arrow type of an Avro type within a namespace."""
        if depth > _MAX_DEPTH:
            raise _WrongSchemaError(f"types lie in one another more than {_MAX_DEPTH} deep")
        if isinstance(kind, list):
            return self._union(kind, depth, space)
        if isinstance(kind, str):
            return _PRIMITIVES[kind] if kind in _PRIMITIVES else self._known(kind, space)
        base = kind["type"]
        if not isinstance(base, str):
            return self.of(base, depth + 1, space)
        match base:
            case "array":
                return pa.list_(self.of(kind["items"], depth + 1, space))
            case "map":
                return pa.map_(pa.string(), self.of(kind["values"], depth + 1, space))
            case "record" | "error" | "enum" | "fixed":
                return self._name(kind, depth, space)
        logical = kind.get("logicalType")
        if logical == "decimal" and base == "bytes":
            return _decimal(kind)
        found = _LOGICAL.get((base, logical))
        return found if found is not None else self.of(base, depth + 1, space)

    def _union(self, kinds: list[Any], depth: int, space: str) -> pa.DataType:
        others = [each for each in kinds if each != "null"]
        if len(others) > 1:
            raise _WrongSchemaError(
                "it has a union of several types, which no column has; use null and one type"
            )
        return self.of(others[0], depth + 1, space) if others else pa.null()

    def _known(self, name: str, space: str) -> pa.DataType:
        full = _full_name(name, space)
        found = self._named.get(full, self._named.get(name))
        if found is None:
            is_open = full in self._named or name in self._named
            reason = "contains itself" if is_open else "is not defined"
            raise _WrongSchemaError(f"the type {name} {reason}")
        return found

    def _name(self, kind: Mapping[str, Any], depth: int, space: str) -> pa.DataType:
        space = kind.get("namespace", space)
        full = _full_name(kind["name"], space)
        self._named[full] = None
        self._named[full] = found = self._defined(kind, depth, full.rpartition(".")[0])
        return found

    def _defined(self, kind: Mapping[str, Any], depth: int, space: str) -> pa.DataType:
        if kind["type"] == "enum":
            return pa.string()
        if kind["type"] == "fixed":
            if kind.get("logicalType") == "decimal":
                return _decimal(kind)
            return pa.binary(int(kind["size"]))
        return pa.struct(
            [(each["name"], self.of(each["type"], depth + 1, space)) for each in kind["fields"]]
        )


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _decimal(kind: Mapping[str, Any]) -> pa.DataType:
    return pa.decimal128(int(kind["precision"]), int(kind.get("scale", 0)))
