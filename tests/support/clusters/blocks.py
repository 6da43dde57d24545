"""Blocks with columns of every type, and their bytes at any address."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from mrflight.shuffle.wire.block import ipc_options

PLAIN = ipc_options("none")

TIMES = [
    pa.date32(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.timestamp("us", "Europe/Rome"),
    pa.timestamp("ns"),
    pa.duration("ms"),
]
NUMBERS = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(getattr(pa, f"float{bits}")() for bits in (16, 32, 64)),
]
DECIMALS = [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)]
TEXTS = [
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)),
]

COLUMNS: list[pa.Array] = [
    pa.nulls(4),
    pa.array([True, False, None, True]),
    *(pa.array([1, 0, None, 100], type_) for type_ in NUMBERS),
    *(pa.array([Decimal("1.25"), None, Decimal("-3.50"), Decimal(0)], type_) for type_ in DECIMALS),
    *(pa.array([b"abcd", None, b"efgh", b"    "]).cast(type_) for type_ in TEXTS),
    pa.array(["a text that is longer than a view", "", None, "ä"], pa.string_view()),
    *(
        pa.array([0, 1, None, 5], pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
        for type_ in TIMES
    ),
    pa.array([0, 86_400_000, None, 0]).view(pa.date64()),
    pa.array([(1, 2, 3), None, (0, 0, 0), (1, 1, 1)], pa.month_day_nano_interval()),
    pa.array(["a", "b", None, "a"]).dictionary_encode(),
    pa.array([["a"], [], None, ["b", None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.array([[1], [], None, [2, None]]),
    pa.array([[1], [], None, [2, None]], pa.large_list(pa.int16())),
    pa.array([[1], [], None, [2, None]], pa.list_view(pa.int8())),
    pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int8(), 2)),
    pa.array([{"x": 1, "y": [{"z": "a"}]}, None, {"x": None, "y": []}, {"x": 4, "y": None}]),
    pa.array([[("a", 1)], [], None, [("b", None)]], pa.map_(pa.string(), pa.int8())),
    pa.RunEndEncodedArray.from_arrays(pa.array([3, 4], pa.int32()), pa.array(["a", None])),
    pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])]
    ),
    pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1], pa.int8()),
        pa.array([0, 0, 1, 1], pa.int32()),
        [pa.array([1, 2]), pa.array(["a", "b"])],
    ),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 4, pa.binary(16))),
]


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        list(columns), names=[f"column {i}" for i in range(len(columns))]
    )


def at_offset(body: pa.Buffer, offset: int) -> pa.Buffer:
    """Return the same bytes at ``offset`` after an address that is a multiple of 64."""
    room = pa.allocate_buffer(body.size + 64)
    start = -room.address % 64 + offset
    memoryview(room).cast("B")[start : start + body.size] = memoryview(body).cast("B")
    return room.slice(start, body.size)
