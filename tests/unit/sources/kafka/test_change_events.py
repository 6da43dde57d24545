"""Tests of how change events of Debezium become rows: their columns, types, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import pickle
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.input_spec import InputSpec
from mrflight.config.job_file import decode_job
from mrflight.config.spec import JobSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFileError
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.kafka.changes.change_format import ADDED_FIELDS, ChangeFormat
from mrflight.sources.kafka.changes.encoded_columns import to_decimal
from mrflight.sources.kafka.changes.opening import open_changes
from mrflight.sources.kafka.decoding import MessageDecoder
from mrflight.sources.kafka.messages import Messages
from tests.support.streams.changed_rows import AVRO_ENVELOPE, FIELDS, Changes, Message
from tests.support.suite.messages import refused

HERE = Path("/")


def messages(sent: list[Message]) -> Messages:
    rows = len(sent)
    offsets, times = pa.array(range(rows), pa.int64()), pa.array([1] * rows, pa.int64())
    keys, values = zip(*sent, strict=True)
    return Messages("t", 0, offsets, times, *(pa.array(x, pa.binary()) for x in (keys, values)))


def opened(sent: Messages, folder: Path = HERE, **keys: Any) -> ChangeFormat:
    spec = InputSpec(kafka="b:1", topic="t", envelope="debezium", **{"format": "json", **keys})
    format = open_changes("items", spec, folder, None, lambda: [sent])
    return pickle.loads(pickle.dumps(format))  # type: ignore[no-any-return]


def event(operation: str | None, before: Any, after: Any, schema: Any = None) -> bytes:
    payload = {"op": operation, "before": before, "after": after, "source": {}, "ts_ms": 1}
    return json.dumps(
        payload if schema is None else {"schema": schema, "payload": payload}
    ).encode()


def rows_of(format: ChangeFormat, sent: Messages, log: BadRowLog | None = None) -> Any:
    schema = pa.schema([*format.schema, *ADDED_FIELDS])
    return MessageDecoder("items", format, schema, True).decode(sent, log).to_pylist()


WRITTEN: dict[str, tuple[Any, Any, Any]] = {
    "date": ({"type": "int32", "name": "io.debezium.time.Date"}, 19000, dt.date(2022, 1, 8)),
    "millis": (
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        1500,
        dt.datetime(1970, 1, 1, 0, 0, 1, 500_000),
    ),
    "micros": (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        -1,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    ),
    "zoned": (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2026-11-21T12:00:00.5+02:00",
        dt.datetime(2026, 11, 21, 10, 0, 0, 500_000, dt.UTC),
    ),
    "decimal": (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "6"},
        },
        base64.b64encode((-12345).to_bytes(3, "big", signed=True)).decode(),
        Decimal("-123.45"),
    ),
    "bytes": ({"type": "bytes"}, "AP8=", b"\x00\xff"),
    "time of day": ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 7, 7),
    "uuid": ({"type": "string", "name": "io.debezium.data.Uuid"}, "a-b", "a-b"),
    "small": ({"type": "int16"}, 7, 7),
    "list": ({"type": "array", "items": {"type": "int32"}}, [1, None], [1, None]),
    "struct": (
        {"type": "struct", "fields": [{"field": "x", "type": "double"}]},
        {"x": 0.5},
        {"x": 0.5},
    ),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_types_of_connect_have_columns(kind: str) -> None:
    schema, written, read = WRITTEN[kind]
    row = {"type": "struct", "field": "after", "fields": [{"field": "v", **schema}]}
    envelope = {"type": "struct", "fields": [row]}
    values = [written, None]
    sent = messages([(None, event("c", None, {"v": v}, envelope)) for v in values])
    found = [each["v"] for each in rows_of(opened(sent), sent)]
    assert found == [read, None]


@given(number=st.integers(-(10**38) + 1, 10**38 - 1), scale=st.integers(0, 38))
def test_decimals_are_whole_numbers_of_bytes(number: int, scale: int) -> None:
    data = number.to_bytes(17, "big", signed=True)
    found = to_decimal(data, scale).as_tuple()
    assert (found.sign, found.digits) == Decimal(number).as_tuple()[:2]
    assert found.exponent == -scale


@pytest.mark.parametrize("shape", ["json with its schema", "plain json"])
@pytest.mark.parametrize("before", ["whole", "key", "nothing"])
def test_deletes_have_the_row_before_or_the_key(shape: str, before: str) -> None:
    changes = Changes(shape, random.Random(1), before=before)
    changes.put(1)
    row = changes.rows[1]
    changes.delete(1)
    changes.mark_stream()
    sent = messages(changes.messages)
    types = {"day": "date32", "at": "timestamp[us]", "price": "decimal128(10, 2)"}
    keys = {"types": {**types, "zoned": "timestamp[us, UTC]"}}
    log = BadRowLog()
    inserted, deleted = rows_of(opened(sent, **keys), sent, log)
    assert inserted == {**row, "_op": "c", "_deleted": False, "_offset": 0}
    known = row if before == "whole" else dict.fromkeys(row) | {"id": 1}
    assert deleted == {**known, "_op": "d", "_deleted": True, "_offset": 1}
    assert log.rows == 0


BAD = {
    b"junk": "is no change event of Debezium",
    b"7": "is no change event of Debezium",
    b'{"id": 1}': "it has no op",
    b'{"source": {}, "ddl": "drop table t", "ts_ms": 1}': "it has no op",
    event("t", None, None): "a truncate event",
    event("x", None, {"n": 1}): "unknown op 'x'",
    event("c", {"n": 1}, None): "after it there is no row",
    event("c", None, 7): "object",
    event("c", None, {"n": "x"}): "column 'n'",
    event("c", None, {"n": 1, "m": 2}): "field 'm' is not in",
    event("d", None, None): "without the row before it",
}


@pytest.mark.parametrize("value", BAD)
def test_bad_messages_are_told_from_good_ones(value: bytes) -> None:
    good: list[Message] = [(None, event("c", None, {"n": 1})), (None, event("u", None, {"n": 2}))]
    format = opened(messages(good))
    sent = messages([good[0], (None, value), (None, None), good[1]])
    log = BadRowLog()
    assert [(each["n"], each["_offset"]) for each in rows_of(format, sent, log)] == [(1, 0), (2, 3)]
    assert log.rows == 1
    with pytest.raises(ValueError, match=r".") as caught:
        format.decode_messages(sent)
    reasons = [str(caught.value), format.explain(value, str(caught.value))]
    assert any(BAD[value] in each for each in reasons), reasons


def test_both_shapes_may_be_in_one_topic() -> None:
    sent = messages(
        [
            (b'{"payload": {"n": 3}}', event("d", None, None, {})),
            (None, event("c", None, {"n": 1}, {})),
            (None, event("c", None, {"n": 2})),
            (None, b'{"schema": null, "payload": null}'),
        ]
    )
    found = [(each["n"], each["_op"]) for each in rows_of(opened(sent), sent)]
    assert found == [(3, "d"), (1, "c"), (2, "c")]


def test_messages_may_have_no_rows_at_all() -> None:
    format = opened(messages([(None, event("c", None, {"n": 1}))]))
    none = messages([(b"1", None), (None, b'{"ts_ms": 1}')])
    assert rows_of(format, none) == rows_of(format, none.slice(0, 0)) == []


def test_text_of_a_time_stays_text_without_a_type() -> None:
    sent = messages([(None, event("c", None, {"at": "2026-11-21T12:00:00Z"}))])
    assert rows_of(opened(sent), sent)[0]["at"] == "2026-11-21T12:00:00Z"


VARIABLE = {"field": "v", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}


@pytest.mark.parametrize(
    ("fields", "keys", "error", "key"),
    [
        ([VARIABLE], {}, InputError, "inputs.items"),
        ([{"field": "v", "type": "map"}], {}, InputError, "inputs.items"),
        ([{"field": "v"}], {}, InputError, "inputs.items"),
        (FIELDS, {"types": {"day": "int32"}}, InputError, "inputs.items.types.day"),
        (FIELDS, {"types": {"at": "timestamp[ms]"}}, InputError, "inputs.items.types.at"),
        (FIELDS, {"columns": ["nme"]}, ColumnNotFoundError, "inputs.items.columns"),
    ],
)
def test_columns_that_cannot_be_read(
    fields: Any, keys: Any, error: type[Exception], key: str
) -> None:
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    sent = messages([(None, event("c", None, {}, schema))])
    with refused(error, key):
        opened(sent, **keys)


def test_columns_that_are_not_selected_may_be_unreadable() -> None:
    after = {"field": "after", "type": "struct", "fields": [VARIABLE, FIELDS[0]]}
    value = event("c", None, {"v": {"scale": 1, "value": "AQ=="}, "id": 5}, {"fields": [after]})
    sent = messages([(None, value)])
    format = opened(sent, columns=["id"])
    assert [each["id"] for each in rows_of(format, sent)] == [5]


def test_avro_of_a_schema_file(tmp_path: Path) -> None:
    from fastavro import parse_schema, schemaless_writer

    (tmp_path / "items.avsc").write_text(json.dumps(AVRO_ENVELOPE))
    at = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    row = {"id": 1, "name": None, "day": 1, "at": 5, "zoned": "2026-11-21T12:00:00Z"}
    out = io.BytesIO()
    payload = {"op": "u", "after": {**row, "price": Decimal("1.50")}, "before": None}
    schemaless_writer(out, parse_schema(AVRO_ENVELOPE), payload)
    sent = messages([(None, out.getvalue()), (None, b"\x7f")])
    log = BadRowLog()
    format = opened(sent, tmp_path, format="avro", schema="items.avsc")
    assert rows_of(format, sent, log) == [
        {
            **row,
            "day": dt.date(1970, 1, 2),
            "at": dt.datetime(1970, 1, 1, 0, 0, 0, 5),
            "zoned": at,
            "price": Decimal("1.50"),
            "_op": "u",
            "_deleted": False,
            "_offset": 0,
        }
    ]
    assert log.rows == 1


def job(**output: Any) -> JobSpec:
    items = {"kafka": "b:1", "topic": "t", "format": "json", "envelope": "debezium"}
    more = {"columns": ["id"]}
    document = {"job": {"name": "t"}, "inputs": {"items": items | more}}
    return decode_job({**document, "output": {"table": "out", **output}})


def test_a_merge_of_changes_needs_only_keys() -> None:
    spec = job(mode="merge", keys=["id"])
    assert (spec.output.order_by, spec.output.delete_when) == ("_offset", "_deleted")
    assert spec.inputs["items"].columns == ["id", "_op", "_deleted", "_offset"]
    own = job(mode="merge", keys=["id"], order_by="n", delete_when="_op = 'd' and n > 0").output
    assert (own.order_by, own.delete_when) == ("n", "_op = 'd' and n > 0")
    assert job(mode="append").output.order_by is None


def test_changes_of_a_stage_are_merged_as_those_of_the_job() -> None:
    items = {"kafka": "b:1", "topic": "t", "format": "json", "envelope": "debezium"}
    stage = {"inputs": {"items": items}}
    document = {"job": {"name": "t"}, "stages": {"s": stage}, "inputs": {"x": {"stage": "s"}}}
    output = {"table": "out", "mode": "merge", "keys": ["id"]}
    assert decode_job({**document, "output": output}).output.delete_when == "_deleted"
    with refused(JobFileError, "output.mode"):
        decode_job({**document, "output": {"table": "out", "mode": "overwrite"}})


@pytest.mark.parametrize(
    ("output", "key"),
    [
        ({"mode": "overwrite"}, "output.mode"),
        ({"mode": "merge"}, "output.keys"),
        ({"unstored": ["_op"]}, "output.unstored"),
    ],
)
def test_outputs_that_changes_cannot_have(output: Any, key: str) -> None:
    with refused(JobFileError, key):
        job(**output)
