"""Tests of the common type of two types."""

from __future__ import annotations

import decimal
from itertools import product

import pyarrow as pa
import pytest
from pyarrow import types

from mrflight.sources.common_type import common_type
from tests.support.suite.cases import cases

STRUCT = pa.struct([("x", pa.int8())])


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (pa.null(), pa.string(), pa.string()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.uint16(), pa.uint64(), pa.uint64()),
        (pa.uint64(), pa.int8(), None),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)),
        (pa.uint64(), pa.decimal128(5, 2), pa.decimal128(22, 2)),
        (pa.decimal128(5, 4), pa.decimal128(9, 2), pa.decimal128(11, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 1), None),
        (pa.decimal128(5, 2), pa.float64(), None),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.date32(), pa.timestamp("s"), pa.timestamp("s")),
        (pa.date64(), pa.timestamp("s"), pa.timestamp("ms")),
        (pa.date32(), pa.timestamp("s", "UTC"), None),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s", "UTC"), pa.timestamp("s"), None),
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.duration("s"), pa.duration("ms"), pa.duration("ms")),
        (pa.bool_(), pa.int8(), None),
        (pa.string(), pa.int64(), None),
        (pa.string(), pa.binary(), None),
        (pa.list_(pa.int8()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (pa.list_(pa.int8()), pa.list_(pa.string()), None),
        (STRUCT, pa.struct([("x", pa.string())]), None),
    ],
    ids=str,
)
def test_the_common_type_of_two(a: pa.DataType, b: pa.DataType, common: pa.DataType | None) -> None:
    assert common_type(a, b) == common
    assert common_type(b, a) == common


def test_structs_have_the_fields_of_both() -> None:
    other = pa.struct([("y", pa.string()), ("x", pa.int64())])
    assert common_type(STRUCT, other) == pa.struct([("x", pa.int64()), ("y", pa.string())])


NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(9, 0)),
]


def extremes(kind: pa.DataType) -> pa.Array:
    if types.is_decimal(kind):
        most = decimal.Decimal("9" * kind.precision).scaleb(-kind.scale)
        return pa.array([most, -most, None], kind)
    if types.is_floating(kind):
        return pa.array([0.1, -65504.0, None], pa.float64()).cast(kind)
    low = -(2 ** (kind.bit_width - 1)) if types.is_signed_integer(kind) else 0
    return pa.array([low, low + 2**kind.bit_width - 1, None], kind)


def test_a_cast_to_the_common_type_loses_nothing() -> None:
    with cases() as case:
        for a, b in product(NUMBERS, NUMBERS):
            common = common_type(a, b)
            is_checked = types.is_uint64(a) and types.is_floating(b)
            if common is not None and not is_checked:
                with case(f"{a} with {b}"):
                    assert extremes(a).cast(common).to_pylist() == extremes(a).to_pylist()
