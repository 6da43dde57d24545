"""Every row goes to exactly one partition, in order, and equal keys go to the same one."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.config.sort_key import ascending
from mrflight.errors import ColumnNotFoundError, KeyTypeError
from mrflight.shuffle.client.partitioners import (
    HashPartitioner,
    InOrderPartitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from mrflight.shuffle.client.range_partitioner import RangePartitioner
from tests.support.queries.key_arrays import key_arrays
from tests.support.queries.partitioning import batch_of, examples, floats, layouts, placed, texts

partition_counts = st.sampled_from([1, 2, 3, 7, 20, 1000])
small_ints = st.none() | st.integers(-128, 127)


# Hash


@examples
@given(st.data(), st.integers(0, 30), st.integers(1, 3), partition_counts)
def test_hash_places_every_row_of_any_key(
    data: st.DataObject, rows: int, columns: int, partitions: int
) -> None:
    batch = batch_of(**{f"k{i}": data.draw(key_arrays(rows)) for i in range(columns)})
    partitioner = HashPartitioner(tuple(batch.schema.names), partitions)
    placed(partitioner, batch, partitions)


@examples
@given(st.lists(st.tuples(texts, small_ints, floats), min_size=1), partition_counts)
def test_hash_brings_equal_keys_together(
    rows: list[tuple[str | None, int | None, float | None]], partitions: int
) -> None:
    a, b, c = (list(column) for column in zip(*rows, strict=True))
    batch = batch_of(a=pa.array(a, pa.string()), b=pa.array(b, pa.int8()), c=pa.array(c))
    found: dict[object, int] = {}
    of_row = placed(HashPartitioner(("a", "b", "c"), partitions), batch, partitions)
    for (text, number, value), partition in zip(rows, of_row, strict=True):
        key = (text, number, "nan" if value is not None and math.isnan(value) else value)
        assert found.setdefault(key, partition) == partition


@examples
@given(st.lists(texts, min_size=1), partition_counts)
def test_hash_places_strings_alike_in_every_layout(
    values: list[str | None], partitions: int
) -> None:
    partitioner = HashPartitioner(("k",), partitions)
    expected, *others = (
        placed(partitioner, batch_of(k=array), partitions) for array in layouts(values)
    )
    assert all(other == expected for other in others)


@examples
@given(st.lists(small_ints, min_size=1), partition_counts)
def test_hash_places_integers_alike_whatever_their_width(
    values: list[int | None], partitions: int
) -> None:
    partitioner = HashPartitioner(("k",), partitions)

    def of_type(name: str) -> list[int]:
        return placed(partitioner, batch_of(k=pa.array(values, name)), partitions)

    expected = of_type("int64")
    assert all(of_type(f"int{bits}") == expected for bits in (8, 16, 32))
    if all(value is None or value >= 0 for value in values):
        assert all(of_type(f"uint{bits}") == expected for bits in (8, 16, 32, 64))


@examples
@given(st.lists(floats, min_size=1), partition_counts)
def test_hash_places_floats_alike_whatever_their_width(
    values: list[float | None], partitions: int
) -> None:
    partitioner = HashPartitioner(("k",), partitions)
    expected, *others = (
        placed(partitioner, batch_of(k=pa.array(values, name)), partitions)
        for name in ("float64", "float32", "float16")
    )
    assert all(other == expected for other in others)


def test_hash_has_one_zero_and_one_nan() -> None:
    odd_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    values = pa.array(np.array([0.0, -0.0, math.nan, -math.nan, odd_nan]))
    a, b, c, d, e = placed(HashPartitioner(("k",), 1000), batch_of(k=values), 1000)
    assert a == b
    assert c == d == e


def test_hash_refuses_a_missing_key_or_one_without_a_hash() -> None:
    batch = batch_of(a=pa.array([[1]]))
    with pytest.raises(ColumnNotFoundError, match="'b'"):
        HashPartitioner(("b",), 2).ids(batch)
    with pytest.raises(KeyTypeError, match="'a'"):
        HashPartitioner(("a",), 2).ids(batch)


# Round robin


@examples
@given(st.integers(0, 200), partition_counts, st.data())
def test_round_robin_deals_rows_out_in_turn(
    rows: int, partitions: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, partitions - 1))
    batch = batch_of(k=pa.nulls(rows))
    of_row = placed(RoundRobinPartitioner(partitions, first), batch, partitions)
    assert of_row == [(first + row) % partitions for row in range(rows)]
    counts = [of_row.count(partition) for partition in range(partitions)]
    assert max(counts) - min(counts) <= 1


def test_round_robin_goes_on_where_the_last_batch_ended() -> None:
    partitioner = RoundRobinPartitioner(20, first=18)
    ids = [partitioner.ids(batch_of(k=pa.nulls(7))).to_pylist() for _ in range(3)]
    assert ids == [[18, 19, 0, 1, 2, 3, 4], list(range(5, 12)), list(range(12, 19))]


# In order


@examples
@given(st.integers(1, 40), st.integers(0, 5), partition_counts)
def test_in_order_keeps_the_order_of_the_maps(maps: int, rows: int, partitions: int) -> None:
    batch = batch_of(k=pa.nulls(rows))
    of_map = [
        placed(InOrderPartitioner(map_id, maps, partitions), batch, partitions)
        for map_id in range(maps)
    ]
    assert all(len(set(ids)) <= 1 for ids in of_map)
    of_row = [partition for ids in of_map for partition in ids]
    assert of_row == sorted(of_row)
    if rows:
        assert len(set(of_row)) == min(maps, partitions)


# All of them


@pytest.mark.parametrize(
    "partitioner",
    [
        HashPartitioner(("k",), 3),
        RoundRobinPartitioner(3, 1),
        InOrderPartitioner(2, 4, 3),
        RangePartitioner(ascending("k"), batch_of(k=pa.array([2])), 3),
    ],
    ids=lambda partitioner: type(partitioner).__name__,
)
def test_partitioners_can_be_pickled(partitioner: Partitioner) -> None:
    batch = batch_of(k=pa.array([3, 1, 2]))
    again = pickle.loads(pickle.dumps(partitioner))
    assert placed(again, batch, 3) == placed(partitioner, batch, 3)
