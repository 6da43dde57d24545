"""Describes the records of an Avro schema as the kernel reads them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LONGS = (-(2**63), 2**63 - 1)


class Node(NamedTuple):
    """A type of Avro; the nodes of its children follow. ``kernel/src/avro_kind.rs`` reads it."""

    kind: str
    null_at: int | None = None
    """The index of null in the union of null and the type; None if it is no such union."""
    children: int = 0
    size: int | None = None
    """The number of bytes of a fixed type."""
    digits: int = 0
    """Those of a decimal."""
    low: int = _LONGS[0]
    high: int = _LONGS[1]
    """Numbers beyond these are damaged."""
    symbols: tuple[str, ...] = ()


_DAY_S = 24 * 60 * 60
_EPOCH = dt.date(1970, 1, 1)
_DAYS = ((dt.date.min - _EPOCH).days, (dt.date.max - _EPOCH).days)

_MAX_NODES = 10_000
_MAX_FIXED_BYTES = 64 << 10
"""A null takes as many bytes as a value, and one byte of a message says that there is one."""


class NotForKernelError(Exception):
    """The kernel cannot read records of a schema."""


def record_nodes(parsed: Mapping[str, Any], schema: pa.Schema) -> list[Node]:
    """Return the nodes of a record that fastavro has parsed and whose columns are ``schema``.

    Raises NotForKernelError for what the kernel does not read: unions of other than null and one
    type, arrays of values that may have no bytes, records without fields or with one name twice,
    large fixed types, and what fastavro does not read as Avro says.
    """
    nodes = list(_Nodes().record(parsed, list(schema), None))
    if len(nodes) > _MAX_NODES:
        raise NotForKernelError(f"it has more than {_MAX_NODES:,} types")
    return nodes


class _Nodes:
    """Yields the nodes of types; it knows those that were named before."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._count = 0

    def of(self, kind: Any, type_: pa.DataType, null_at: int | None = None) -> Iterator[Node]:
        """Yield the nodes of an Avro type that becomes ``type_``."""
        self._count += 1
        if self._count > _MAX_NODES:
            raise NotForKernelError(f"it has more than {_MAX_NODES:,} types")
        if isinstance(kind, list):
            yield from self._union(kind, type_, null_at)
            return
        if isinstance(kind, str):
            kind = self._named.get(kind, {"type": kind})
        match kind["type"]:
            case "array":
                yield Node("array", null_at, 1)
                items = list(self.of(kind["items"], type_.value_type))
                if not _has_bytes(items):
                    raise NotForKernelError("it has an array of values without bytes")
                yield from items
            case "map":
                yield from (Node("map", null_at, 2), Node("string"))
                yield from self.of(kind["values"], type_.item_type)
            case "record" | "error":
                yield from self.record(kind, list(type_), null_at)
            case "enum":
                self._named[kind["name"]] = kind
                yield Node("enum", null_at, symbols=tuple(kind["symbols"]))
            case "fixed":
                self._named[kind["name"]] = kind
                yield _fixed(kind, type_, null_at)
            case base if base in _PRIMITIVES:
                yield _simple(base, type_, null_at)
            case other:
                raise NotForKernelError(f"it has the type {other}")

    def record(
        self, kind: Mapping[str, Any], fields: list[pa.Field], null_at: int | None
    ) -> Iterator[Node]:
        """Yield the nodes of a record with these fields."""
        self._named[kind["name"]] = kind
        names = [each["name"] for each in kind["fields"]]
        if not names or len(set(names)) < len(names):
            raise NotForKernelError("a record has no fields, or two of the same name")
        yield Node("record", null_at, len(names))
        for each, field in zip(kind["fields"], fields, strict=True):
            yield from self.of(each["type"], field.type)

    def _union(self, kinds: list[Any], type_: pa.DataType, null_at: int | None) -> Iterator[Node]:
        others = [each for each in kinds if each != "null"]
        if len(kinds) != 2 or len(others) != 1 or null_at is not None:
            raise NotForKernelError("it has a union of other than null and one type")
        yield from self.of(others[0], type_, kinds.index("null"))


def _fixed(kind: Mapping[str, Any], type_: pa.DataType, null_at: int | None) -> Node:
    size = int(kind["size"])
    if not 0 < size <= _MAX_FIXED_BYTES:
        raise NotForKernelError(f"a fixed type has {size:,} bytes")
    if pa.types.is_decimal(type_):
        return _decimal(type_, null_at, size)
    return Node("fixed", null_at, size=size)


def _simple(base: str, type_: pa.DataType, null_at: int | None) -> Node:
    if pa.types.is_decimal(type_):
        return _decimal(type_, null_at, None)
    low, high = _bounds(type_)
    return Node(base, null_at, low=low, high=high)


def _decimal(type_: pa.DataType, null_at: int | None, size: int | None) -> Node:
    if not 0 <= type_.scale <= type_.precision:
        raise NotForKernelError(f"a decimal has the scale {type_.scale}")
    return Node("decimal", null_at, size=size, digits=type_.precision)


def _bounds(type_: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest number that Python has a date or a time for."""
    if pa.types.is_date(type_):
        return _DAYS
    if pa.types.is_time(type_):
        return 0, _DAY_S * _per_second(type_) - 1
    if pa.types.is_timestamp(type_) and type_.unit != "ns":
        low, high = _DAYS
        day = _DAY_S * _per_second(type_)
        return low * day, (high + 1) * day - 1
    return _LONGS


def _per_second(type_: pa.DataType) -> int:
    return {"ms": 1_000, "us": 1_000_000}[type_.unit]


def _has_bytes(nodes: list[Node]) -> bool:
    """Return whether each value of the first of these nodes has a byte at least."""
    if nodes[0].null_at is not None or nodes[0].kind not in ("null", "record"):
        return True
    # A record has bytes if any of its fields does; those of fields are after it, in any depth.
    return any(each.null_at is not None or each.kind not in ("null", "record") for each in nodes)
