"""Types become canonical, and columns become types that Arrow can compare."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mrflight.compute.types import canonical_type, comparable


@pytest.mark.parametrize(
    ("type_", "plain"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.dictionary(pa.int32(), pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.run_end_encoded(pa.int16(), pa.dictionary(pa.int8(), pa.string_view())), pa.string()),
        *((type_, type_) for type_ in (pa.string(), pa.int8(), pa.binary(4), pa.null())),
    ],
    ids=str,
)
def test_encodings_and_wide_offsets_become_plain(type_: pa.DataType, plain: pa.DataType) -> None:
    assert canonical_type(type_) == plain


@pytest.mark.parametrize(
    ("type_", "plain"),
    [
        (pa.list_(pa.large_string()), pa.list_(pa.string())),
        (pa.large_list(pa.int8()), pa.list_(pa.int8())),
        (pa.struct({"x": pa.dictionary(pa.int8(), pa.string())}), pa.struct({"x": pa.string()})),
        (pa.list_(pa.large_string(), 3), pa.list_(pa.string(), 3)),
        (pa.map_(pa.string_view(), pa.large_binary()), pa.map_(pa.string(), pa.binary())),
        (pa.map_(pa.string(), pa.int8(), keys_sorted=True), pa.map_(pa.string(), pa.int8())),
    ],
    ids=str,
)
def test_nested_columns_become_plain_inside(type_: pa.DataType, plain: pa.DataType) -> None:
    """Otherwise two inputs with the same lists in different layouts could not be combined."""
    assert canonical_type(type_) == plain


NEVER_NULL = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("type_", "plain"),
    [
        (pa.struct([NEVER_NULL]), pa.struct({"x": pa.int64()})),
        (pa.list_(NEVER_NULL), pa.list_(pa.int64())),
        (pa.map_(pa.string(), NEVER_NULL), pa.map_(pa.string(), pa.int64())),
        (pa.list_(pa.struct([NEVER_NULL]), 2), pa.list_(pa.struct({"x": pa.int64()}), 2)),
    ],
    ids=str,
)
def test_nested_fields_are_nullable(type_: pa.DataType, plain: pa.DataType) -> None:
    assert canonical_type(type_) == plain
    assert type_ != plain


def test_leaves_are_flat_types_and_list_views() -> None:
    seen = []

    def noted(leaf: pa.DataType) -> pa.DataType:
        seen.append(leaf)
        return pa.int8()

    type_ = pa.struct(
        [
            ("a", pa.list_(pa.large_string())),
            ("b", pa.dictionary(pa.int8(), pa.binary_view())),
            ("c", pa.list_view(pa.int8())),
            ("d", pa.map_(pa.date32(), pa.bool_())),
        ]
    )
    canonical_type(type_, noted)
    assert seen == [pa.string(), pa.binary(), pa.list_view(pa.int8()), pa.date32(), pa.bool_()]


def test_lists_of_a_fixed_size_may_become_lists() -> None:
    type_ = pa.list_(pa.list_(pa.large_string(), 2), 3)
    assert canonical_type(type_, keep_fixed_size=False) == pa.list_(pa.list_(pa.string()))


DECIMALS = [Decimal("1.5"), Decimal("-2.25"), None, Decimal(0)]


def decimals(name: str, digits: int) -> list[pa.Array]:
    """Return a column of this type, or none if pyarrow is too old to have the type."""
    make = getattr(pa, name, None)
    return [] if make is None else [pa.array(DECIMALS, make(digits, 2))]


COLUMNS = [
    pa.array([3, -1, None, 2], pa.duration("s")),
    pa.array([3, -1, None, 2], pa.duration("ns")),
    pa.array([np.float16(0.5), np.float16(-1), None, np.float16(0)]),
    *decimals("decimal32", 9),
    *decimals("decimal64", 18),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_comparable_columns_keep_the_order_of_values(column: pa.Array) -> None:
    found_values = comparable(pa.chunked_array([column]))
    assert pc.sort_indices(found_values).to_pylist() == [1, 3, 0, 2]
    values: list[Any] = sorted(value for value in column.to_pylist() if value is not None)
    extremes = pc.min_max(found_values)
    found = pa.array([extremes["min"].as_py(), extremes["max"].as_py()], found_values.type)
    assert found.cast(column.type).to_pylist() == [values[0], values[-1]]


@pytest.mark.parametrize(
    "column", [pa.array([1]), pa.array(["a"]), pa.array([0.5]), pa.array([Decimal(1)])], ids=str
)
def test_other_types_are_unchanged(column: pa.Array) -> None:
    assert comparable(pa.chunked_array([column])) == pa.chunked_array([column])
