"""Rows whose key occurs once are separated from the others."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.compute.singleton_groups import split_singleton_groups


def table(keys: list[object], chunk: int = 7) -> pa.Table:
    numbered = pa.table({"key": keys, "row": list(range(len(keys)))})
    return pa.Table.from_batches(numbered.to_batches(max_chunksize=chunk), numbered.schema)


@given(st.lists(st.one_of(st.none(), st.integers(0, 2000)), max_size=200))
def test_every_row_is_in_one_part(keys: list[int | None]) -> None:
    rows = table(list(keys)).cast(pa.schema([("key", pa.int64()), ("row", pa.int64())]))
    lone, others = split_singleton_groups(rows, ["key"])
    counts = Counter(keys)
    assert all(counts[key] == 1 for key in lone["key"].to_pylist())
    assert sorted(lone["row"].to_pylist() + others["row"].to_pylist()) == list(range(len(keys)))
    for part in (lone, others):
        assert part["row"].to_pylist() == sorted(part["row"].to_pylist())
        assert part.schema == rows.schema


def test_all_keys_that_occur_once_are_found() -> None:
    lone, others = split_singleton_groups(table([f"key {i}" for i in range(1000)]), ["key"])
    assert (len(lone), len(others)) == (1000, 0)


def test_a_few_keys_that_occur_twice_are_found_among_many() -> None:
    keys = [f"key {i}" for i in range(1000)] + ["key 3", "key 997"]
    lone, others = split_singleton_groups(table(keys), ["key"])
    assert len(lone) == 998
    assert others["row"].to_pylist() == [3, 997, 1000, 1001]


def test_tables_with_frequent_keys_are_not_searched() -> None:
    keys = [f"key {i % 10}" for i in range(1000)] + ["once"]
    lone, others = split_singleton_groups(table(keys), ["key"])
    assert (len(lone), len(others)) == (0, 1001)


def test_all_columns_of_the_key_count() -> None:
    rows = pa.table({"a": [1, 1, 2, 2], "b": ["x", "y", "x", "x"]})
    lone, others = split_singleton_groups(rows, ["a", "b"])
    assert lone.to_pylist() == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]
    assert others.to_pylist() == [{"a": 2, "b": "x"}] * 2
    many = pa.concat_tables([rows, pa.table({"a": range(10, 30), "b": ["z"] * 20})])
    lone, others = split_singleton_groups(many, ["a", "b"])
    assert len(lone) == 22
    assert others.to_pylist() == [{"a": 2, "b": "x"}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_equal_floats_are_one_key_whatever_their_bits(kind: pa.DataType) -> None:
    floats = pa.array([0.0, -0.0, float("nan"), -float("nan"), *range(1, 40)], kind)
    lone, others = split_singleton_groups(pa.table({"key": floats, "row": range(43)}), ["key"])
    assert (len(lone), others["row"].to_pylist()) == (39, [0, 1, 2, 3])


def test_no_rows() -> None:
    lone, others = split_singleton_groups(
        table([]).cast(pa.schema([("key", pa.int64()), ("row", pa.int64())])), ["key"]
    )
    assert (len(lone), len(others)) == (0, 0)
