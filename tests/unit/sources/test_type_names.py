"""The names of types in a job file."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from mrflight.sources.type_names import parse_type

NAMES = """
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 string large_string binary
large_binary date32 date64 time32[s] time32[ms] time64[us] time64[ns] timestamp[s] timestamp[ns]
duration[ms] decimal128(12,2) list<int8> struct<a:int8,b:list<string>>
"""


@pytest.mark.parametrize("text", NAMES.split())
def test_a_type_name_is_parsed(text: str) -> None:
    type = parse_type(text)
    assert parse_type(str(type)) == type


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("timestamp[us, UTC]", pa.timestamp("us", "UTC")),
        ("timestamp[us, tz=Europe/Rome]", pa.timestamp("us", "Europe/Rome")),
        ("timestamp[ms, +02:00]", pa.timestamp("ms", "+02:00")),
        (" decimal128(12, 2) ", pa.decimal128(12, 2)),
        ("float", pa.float32()),
        ("double", pa.float64()),
        (
            "struct<a: decimal128(3, 1), b: list<struct<c: timestamp[us, UTC]>>>",
            pa.struct(
                [
                    ("a", pa.decimal128(3, 1)),
                    ("b", pa.list_(pa.struct([("c", pa.timestamp("us", "UTC"))]))),
                ]
            ),
        ),
    ],
)
def test_a_type_name_with_parameters_is_parsed(text: str, type: pa.DataType) -> None:
    assert parse_type(text) == type


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "known types are bool, int8 to int64"),
        ("integer", "'integer' is not a type; known types are bool"),
        ("int", "'int' is not a type"),
        ("Int64", "'Int64' is not a type"),
        ("timestamp", "'timestamp' is not a type"),
        ("timestamp[h]", "'timestamp[h]' is not a type"),
        ("timestamp[us, Mars]", "'Mars' is not a time zone"),
        ("timestamp[us, ../etc]", "'../etc' is not a time zone"),
        ("time32[us]", "'time32[us]' is not a type"),
        ("time64[ms]", "'time64[ms]' is not a type"),
        ("duration[s, UTC]", "'duration[s, UTC]' is not a type"),
        ("decimal128(50, 2)", "precision"),
        ("list<>", "'' is not a type"),
        ("list<int>", "'int' is not a type"),
        ("struct<int64>", "'int64' is not a field; write struct<x: int64"),
        ("dictionary<int32, string>", "is not a type"),
    ],
)
def test_invalid_type_names_are_refused(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(part)):
        parse_type(text)
