"""Tests that the kernel and fastavro make the same rows and rejects of Avro records."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from mrflight.errors import BrokerUnavailableError
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.formats import avro_decoder
from mrflight.sources.kafka.formats.avro_decoder import record_decoder
from mrflight.sources.kafka.formats.avro_format import AvroFormat
from mrflight.sources.kafka.formats.avro_schema import avro_columns
from mrflight.sources.kafka.formats.schema_registry import fetch_schema
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.rejected_message import RejectedMessage
from tests.support.faults.hostile_bytes import damaged
from tests.support.streams.avro_cases import CASES, Case, long
from tests.support.streams.schema_registry import schema_registry

pytestmark = pytest.mark.skipif(
    avro_decoder.kernel_language() != "rust", reason="the kernel is not built"
)


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


def test_a_password_of_a_registry_may_have_a_slash_and_is_not_shown() -> None:
    with schema_registry({3: '"int"'}) as (encoded, _):
        plain = encoded.replace("p%40s%2Fs", "p@s/s")
        for url in (encoded, plain):
            assert fetch_schema(url, 3, "inputs.trips") == '"int"'
    with pytest.raises(BrokerUnavailableError) as caught:
        fetch_schema(plain, 4, "inputs.trips")
    shown = f"http://127.0.0.1:{plain.rpartition(':')[2]}"
    assert str(caught.value).startswith(f"inputs.trips.registry: {shown} does not answer")
    assert "p@s" not in str(caught.value)


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
