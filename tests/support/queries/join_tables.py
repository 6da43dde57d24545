"""Tables that are to be joined, as Hypothesis draws them, with keys of all types that meet."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
from hypothesis import strategies as st

from mrflight.tasks.operators.hash_join import How, Join

HOWS = get_args(How)

SKEW = 0.8
"""The fraction of the rows of a skewed side that have the same key."""

_texts = st.sampled_from(["", "a", "ab", "ä", "a rather long text of which views are made"])
_numbers = st.sampled_from([0, 1, 2, 100])
_words = pa.dictionary(pa.int8(), pa.string())
_zeros = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])

KEYS: list[tuple[list[pa.DataType], st.SearchStrategy[Any]]] = [
    ([pa.int8(), pa.int64(), pa.int16()], _numbers | st.just(-1)),
    ([pa.uint8(), pa.int64(), pa.uint32(), pa.int8()], _numbers),
    ([pa.uint64(), pa.int64(), pa.uint64()], _numbers | st.just(2**62)),
    ([pa.string(), pa.large_string(), pa.string_view(), _words], _texts),
    ([pa.binary(), pa.large_binary(), pa.binary(2)], st.sampled_from([b"ab", b"\0\0"])),
    ([pa.float32(), pa.float64(), pa.float16()], _zeros),
    (
        [pa.decimal128(5, 2), pa.decimal128(30, 2), pa.decimal64(10, 2), pa.decimal256(50, 2)],
        st.sampled_from([Decimal("0.00"), Decimal("-1.25"), Decimal("7.50")]),
    ),
    ([pa.timestamp("us")], st.sampled_from([0, 1, 10**15])),
    ([pa.date32()], st.sampled_from([0, 20_000])),
    ([pa.bool_()], st.booleans()),
    ([pa.null(), pa.int32()], st.none()),
]


@st.composite
def joins(draw: st.DrawFn) -> tuple[Join, pa.Table, pa.Table]:
    """A join of two tables with one or two keys, which may be called alike, and other columns.

    Each side has no rows, some, or many of one key, which may be the same in both; a few are null.
    """
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    names = ("left_on", draw(st.sampled_from(["left_on", "right_on"])))
    heavy = [draw(values) for _, values in kinds]
    made, on = [], []
    for side, name in zip("lr", names, strict=True):
        skew = draw(st.sampled_from([0, SKEW]))
        rows = draw(st.integers(0, 30))
        many = round(rows * skew)
        table = {}
        for number, (types, drawn) in enumerate(kinds):
            others = draw(st.lists(st.none() | drawn, min_size=rows - many, max_size=rows - many))
            values = [heavy[number]] * many + others
            kind = draw(st.sampled_from(types))
            table[f"{name}{number}"] = pa.array(values, kind, from_pandas=False)
        on.append(tuple(table))
        table[f"{side} row"] = pa.array(range(rows), pa.int64())
        table[f"{side} text"] = pa.array([f"{side}{row}" for row in range(rows)], pa.string_view())
        made.append(pa.table(table))
    return Join(draw(st.sampled_from(HOWS)), *on), *made


def has_no_common_type(join: Join, left: pa.Table, right: pa.Table) -> bool:
    """Return whether the join is refused because keys of the two sides have no common type."""
    kinds = [
        {left.schema.field(a).type, right.schema.field(b).type}
        for a, b in zip(join.left_on, join.right_on, strict=True)
        if a == b
    ]
    return join.how == "full" and {pa.uint64(), pa.int64()} in kinds
