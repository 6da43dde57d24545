"""Types of Avro with values of them, and bytes that are none."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, 123_000)
LAST = dt.datetime.max.replace(microsecond=999_000)
PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [{"name": "x", "type": "double"}, {"name": "tag", "type": ["null", "string"]}],
}
HERE, THERE = {"x": 1.5, "tag": None}, {"x": -0.0, "tag": "there"}


class Case(NamedTuple):
    """A type, values of it, and bytes that are none."""

    kind: Any
    values: Sequence[Any]
    bad: Sequence[bytes] = ()
    reader: str = "kernel"


def long(value: int) -> bytes:
    """Return a number as Avro writes it."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*out, bits])


def logical(kind: str, logical_type: str, **others: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **others}


MICROS = (dt.datetime.max - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
DAYS = (dt.date.max - dt.date(1970, 1, 1)).days
WIDE = {"type": "array", "items": {"type": "fixed", "name": "W", "size": 1 << 20}}
FLAT = {"type": "record", "name": "Flat", "fields": [{"name": "n", "type": "null"}]}

CASES = {
    "null": Case("null", [None]),
    "boolean": Case("boolean", [True, False]),
    "int": Case("int", [0, -1, 2**31 - 1, -(2**31)], [long(2**31), long(-(2**31) - 1)]),
    "long": Case(
        "long", [0, 63, 64, -65, 2**63 - 1, -(2**63)], [b"\x80" * 9, b"\xff" * 10 + b"\x01"]
    ),
    "a number with bits beyond": Case("long", [1], [b"\x80" * 9 + b"\x02", b"\x80" * 12 + b"\0"]),
    "float": Case("float", [0.5, float("inf")], [b"\0" * 3]),
    "double": Case("double", [0.1, -0.0, float("-inf")], [b"\0" * 7]),
    "bytes": Case("bytes", [b"", b"\xff\0"], [long(5), long(-1), long(2**62)]),
    "string": Case("string", ["", "\u00e9\U0001f4a3", "x" * 70], [long(2) + b"\xed\xa0", long(9)]),
    "uuid": Case(logical("string", "uuid"), ["2f4f4d1c-0000-4000-8000-000000000001"]),
    "unknown logical type": Case(logical("long", "minutes"), [7]),
    "date": Case(
        logical("int", "date"),
        [NOON.date(), dt.date.min, dt.date.max],
        [long(DAYS + 1), long(-719_163)],
    ),
    "time-millis": Case(
        logical("int", "time-millis"),
        [dt.time(), NOON.time(), dt.time.max.replace(microsecond=999_000)],
        [long(86_400_000), long(-1)],
    ),
    "time-micros": Case(
        logical("long", "time-micros"), [dt.time(), dt.time.max], [long(86_400_000_000), long(-7)]
    ),
    "timestamp-millis": Case(
        logical("long", "timestamp-millis"),
        [NOON.replace(tzinfo=dt.UTC), LAST.replace(tzinfo=dt.UTC)],
        [long(MICROS // 1000 + 1), long(2**62)],
    ),
    "timestamp-micros": Case(
        logical("long", "timestamp-micros"),
        [NOON.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)],
        [long(MICROS + 1), long(-(2**63))],
    ),
    "timestamp-nanos": Case(logical("long", "timestamp-nanos"), [1, -(2**63), 2**63 - 1]),
    "local-timestamp-millis": Case(
        logical("long", "local-timestamp-millis"), [NOON, dt.datetime.min]
    ),
    "local-timestamp-micros": Case(
        logical("long", "local-timestamp-micros"), [NOON, dt.datetime.min]
    ),
    "local-timestamp-nanos": Case(logical("long", "local-timestamp-nanos"), [5]),
    "decimal": Case(
        logical("bytes", "decimal", precision=5, scale=2),
        [Decimal("123.45"), Decimal("-999.99"), Decimal(0)],
        [long(3) + (100_000).to_bytes(3, "big"), long(1), long(0), long(20) + b"\0" * 19 + b"\1"],
    ),
    "decimal of 38 digits": Case(
        logical("bytes", "decimal", precision=38, scale=0),
        [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(0), Decimal(-1)],
        [long(16) + (10**38).to_bytes(16, "big"), long(17) + b"\0" * 17],
    ),
    "fixed decimal": Case(
        logical("fixed", "decimal", precision=4, scale=1, name="D", size=3),
        [Decimal("-0.1"), Decimal("999.9")],
        [b"\x7f\xff\xff"],
    ),
    "fixed": Case({"type": "fixed", "name": "F", "size": 3}, [b"abc"], [b"ab"]),
    "enum": Case(
        {"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]},
        ["DOWN", "UP"],
        [long(2), long(-1), long(-3), long(2**40)],
    ),
    "null or long": Case(
        ["null", "long"], [None, 7, None, None, -7], [long(2), long(-1) + long(1), long(-3)]
    ),
    "string or null": Case(["string", "null"], ["a", None], [long(1), long(-2), long(0) + b"\1"]),
    "null or fixed": Case(
        ["null", {"type": "fixed", "name": "F", "size": 9}], [None, b"012345678"], [long(1) + b"x"]
    ),
    "array": Case(
        {"type": "array", "items": "long"},
        [[], [1, -2, 3], list(range(200))],
        [long(2**62), long(3) + long(1), long(-2) + long(9) + long(5) + long(6) + long(0)],
    ),
    "array of nulls and strings": Case(
        {"type": "array", "items": ["null", "string"]}, [[None, "a"], [], [None] * 9]
    ),
    "array of arrays": Case(
        {"type": "array", "items": {"type": "array", "items": "int"}},
        [[[1], [], [2, 3]], [[]]],
        [long(2) + long(1) + long(4) + long(0) + long(9)],
    ),
    "map": Case(
        {"type": "map", "values": "double"},
        [{}, {"a": 1.0, "b": 2.0}, {str(n): n / 2 for n in range(40)}],
        [
            long(2) + (long(1) + b"k" + b"\0" * 8) * 2 + long(0),
            long(20) + (long(1) + b"k" + b"\0" * 8) * 20 + long(0),
            long(1) + long(1) + b"\xff" + b"\0" * 8 + long(0),
        ],
    ),
    "record": Case(PLACE, [HERE, THERE], [b"\0" * 8, b"\0" * 8 + long(1) + long(3) + b"ab"]),
    "null or record": Case(["null", PLACE], [None, HERE, None, THERE], [long(1) + b"\0" * 8]),
    "array of records": Case(
        {"type": "array", "items": PLACE}, [[HERE, THERE], []], [long(2) + b"\0" * 9]
    ),
    "map of nullable records": Case(
        {"type": "map", "values": ["null", PLACE]}, [{"a": HERE, "b": None}, {}]
    ),
    "union of one": Case(["long"], [3], [long(1)], reader="fastavro"),
    "array of values without bytes": Case(
        {"type": "array", "items": FLAT}, [[{"n": None}] * 3, []], reader="fastavro"
    ),
    "large fixed type": Case(WIDE, [[]], reader="fastavro"),
    "record without fields": Case(
        {"type": "record", "name": "None", "fields": []}, [{}], reader="fastavro"
    ),
}
