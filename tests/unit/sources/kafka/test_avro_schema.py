"""Tests of the columns for Avro schemas."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mrflight.errors import InputError
from mrflight.sources.kafka.formats.avro_schema import avro_columns, parse_avro_schema
from tests.support.suite.messages import refused

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]}


def columns(*kinds: Any) -> list[pa.DataType]:
    fields = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(kinds)]
    record = {"type": "record", "name": "Trip", "namespace": "taxi", "fields": fields}
    return list(avro_columns(record, "trip.avsc").types)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("string", pa.string()),
        (["null", "long"], pa.int64()),
        (["long", "null"], pa.int64()),
        (["long"], pa.int64()),
        ({"type": "long"}, pa.int64()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "long", "logicalType": "unknown"}, pa.int64()),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 16}, pa.binary(16)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            pa.decimal128(9, 2),
        ),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32())),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64())),
        (PLACE, pa.struct([("x", pa.float64())])),
    ],
)
def test_types(kind: Any, expected: pa.DataType) -> None:
    assert columns(kind) == [expected]


def test_named_types_are_known_by_their_short_and_full_names() -> None:
    place = pa.struct([("x", pa.float64())])
    assert columns(PLACE, "Place", ["null", "taxi.Place"]) == [place] * 3


@pytest.mark.parametrize(
    "kind",
    [
        ["int", "string"],
        "Trip",
        "Unknown",
        {"type": "array"},
        {},
        7,
        {"type": "bytes", "logicalType": "decimal", "precision": 99},
    ],
)
def test_what_has_no_columns_is_refused(kind: Any) -> None:
    with refused(InputError):
        columns(kind)


def test_types_that_lie_too_deep_are_refused() -> None:
    kind: Any = "int"
    for _ in range(100):
        kind = {"type": "array", "items": kind}
    with pytest.raises(InputError, match="more than 64 deep"):
        columns(kind)
    with refused(InputError):
        parse_avro_schema("[" * 100_000, "trip.avsc")
