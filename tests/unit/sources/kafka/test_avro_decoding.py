"""Tests that the kernel and fastavro make the same rows and rejects of Avro records."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats import avro_decoder
from mrflight.sources.kafka.formats.avro_decoder import record_decoder
from mrflight.sources.kafka.formats.avro_format import AvroFormat
from mrflight.sources.kafka.formats.avro_schema import avro_columns
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.rejected_message import RejectedMessage
from tests.support.hostile_bytes import damaged
from tests.support.schema_registry import schema_registry

pytestmark = pytest.mark.skipif(
    avro_decoder.kernel_language() != "rust", reason="the kernel is not built"
)

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


def schema_of(kind: Any) -> dict[str, Any]:
    """Return a schema with the kind twice: the second time by its name if it has one."""
    name = kind.get("name") if isinstance(kind, dict) else None
    fields = [("id", "long"), ("x", kind), ("y", name or "string"), ("last", ["null", "int"])]
    fields = [{"name": key, "type": each} for key, each in fields]
    return {"type": "record", "name": "Trip", "namespace": "taxi", "fields": fields}


def encoded(row: Any, schema: Any) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), row)
    return stream.getvalue()


def messages_of(values: Iterable[bytes | None]) -> Messages:
    array = pa.array(values, pa.binary())
    numbers = pa.array(range(len(array)), pa.int64())
    return Messages("trips", 0, numbers, numbers, pa.nulls(len(array), pa.binary()), array)


class Rejects(BadRowLog):
    """Keeps the offsets and reasons of rejected messages."""

    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []

    def add(self, count: int, describe: Any) -> None:
        super().add(count, describe)
        rejected: Iterable[RejectedMessage] = describe()
        self.found += [(each.offset, each.reason) for each in rejected]


Decoded = tuple[pa.RecordBatch, list[tuple[int, str]]]


def decoded(format: AvroFormat, values: Iterable[bytes | None], language: str) -> Decoded:
    """Return the rows and the rejects, as the kernel or fastavro finds them."""
    record_decoder.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_decoder, "kernel_language", lambda: language)
        rejects = Rejects()
        decoder = MessageDecoder("trips", format, format.schema, with_metadata=False)
        batch = decoder.decode(messages_of(values), rejects)
    record_decoder.cache_clear()
    batch.validate(full=True)
    return batch, rejects.found


def check_same(format: AvroFormat, values: Sequence[bytes | None]) -> Decoded:
    by_kernel, by_fastavro = (decoded(format, values, each) for each in ("rust", "python"))
    assert by_kernel[1] == by_fastavro[1]
    assert by_kernel[0].schema == by_fastavro[0].schema
    for column, expected in zip(by_kernel[0].columns, by_fastavro[0].columns, strict=True):
        assert column.equals(expected) or shown(column) == shown(expected)
    return by_kernel


def shown(column: pa.Array) -> str:
    """Return all values as text, in which NaN is equal to itself."""
    is_nanos = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return repr((column.cast(pa.int64()) if is_nanos else column).to_pylist())


def format_of(schema: Mapping[str, Any], columns: pa.Schema | None = None) -> AvroFormat:
    wanted = avro_columns(schema, "trip.avsc") if columns is None else columns
    return AvroFormat("trips", wanted, json.dumps(schema), None)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rows_and_rejects_are_the_same(case: Case) -> None:
    schema = schema_of(case.kind)
    y = schema["fields"][2]["type"]
    ends = ["end" if y == "string" else value for value in case.values]
    rows = [
        {"id": n, "x": value, "y": end, "last": None if n % 2 else n}
        for n, (value, end) in enumerate(zip(case.values, ends, strict=True))
    ]
    good = [encoded(row, schema) for row in rows]
    end = good[0][len(encoded({**rows[0]}, {**schema, "fields": schema["fields"][:2]})) :]
    bad = [long(99) + each + end for each in case.bad]
    format = format_of(schema)
    is_by_kernel = record_decoder(str(format.writer), format.schema) is not None
    assert is_by_kernel == (case.reader == "kernel")
    assert check_same(format, good)[0].num_rows == len(good)
    others = [None, b"", good[0] + b"\0", good[-1][:-1]]
    mixed = [value for pair in zip(good * 9, (bad + others) * 9, strict=False) for value in pair]
    check_same(format, mixed + good)


def test_columns_of_other_types_than_the_fields() -> None:
    fields = [("a", "int"), ("b", "float"), ("c", "long"), ("d", "long")]
    schema = {
        "type": "record",
        "name": "T",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }
    values = [encoded({"a": n, "b": n / 4, "c": n, "d": 3**n}, schema) for n in (0, 1, 30)]
    wider = pa.schema([("b", pa.float64()), ("new", pa.list_(pa.string())), ("a", pa.int64())])
    assert record_decoder(json.dumps(schema), wider) is not None
    batch, rejects = check_same(format_of(schema, wider), values)
    assert batch.column("a").to_pylist() == [0, 1, 30]
    assert batch["new"].null_count == 3
    narrower = pa.schema([("d", pa.int32()), ("c", pa.float64())])
    assert record_decoder(json.dumps(schema), narrower) is None
    batch, rejects = check_same(format_of(schema, narrower), values)
    assert batch.column("d").to_pylist() == [1, 3]
    assert [at for at, _ in rejects] == [2]


def test_records_of_several_schemas_of_a_registry() -> None:
    old, new, other = schema_of("long"), schema_of("long"), schema_of(["long"])
    new["fields"].append({"name": "tip", "type": "double", "default": 0.0})
    schemas = {3: old, 8: new, 11: other}
    row = {"id": 1, "x": 2, "y": "end", "last": None, "tip": 0.5}

    def framed(number: int, of: int) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + encoded({**row, "id": number}, schemas[of])

    values = [framed((3, 8, 11)[n % 3], (3, 8, 11)[n % 3]) for n in range(30)]
    values += [framed(99, 3), values[0][:4], b"\1" + values[0][1:], values[0] + b"\0", values[1]]
    with schema_registry({key: json.dumps(each) for key, each in schemas.items()}) as (url, _):
        format = AvroFormat("trips", avro_columns(new, "it"), None, url)
        batch, rejects = check_same(format, values)
    assert batch.column("id").to_pylist() == [3, 8, 11] * 10 + [8]
    assert batch.column("tip").to_pylist() == [None, 0.5, None] * 10 + [0.5]
    assert [at for at, _ in rejects] == [30, 31, 32, 33]


def kind_of(number: int) -> Any:
    """Return the type of a case, whose named types have names of their own."""
    kind = json.dumps(list(CASES.values())[number].kind)
    return json.loads(re.sub(r'"name": "([A-Z])', rf'"name": "T{number}\1', kind))


READ_BY_KERNEL = [n for n, case in enumerate(CASES.values()) if case.reader == "kernel"]


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_is_found_by_both(seed: int) -> None:
    rng = random.Random(seed)
    fields = [{"name": f"f{n}", "type": kind_of(n)} for n in rng.sample(READ_BY_KERNEL, 6)]
    schema = {"type": "record", "name": "Trip", "fields": fields}
    cases = {f"f{n}": case for n, case in enumerate(CASES.values())}
    rows = [
        {each["name"]: rng.choice(cases[each["name"]].values) for each in fields} for _ in range(60)
    ]
    values = [encoded(row, schema) for row in rows]
    hurt = [damaged(value, rng) if rng.random() < 0.5 else value for value in values]
    batch, rejects = check_same(format_of(schema), hurt)
    assert batch.num_rows + len(rejects) == len(values)
