"""Range partitions hold keys in order, and about as many rows each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.sort_key import SortKey, ascending
from mrflight.shuffle.client.range_partitioner import RangePartitioner, choose_boundaries
from tests.support.queries.partitioning import batch_of, floats, placed
from tests.support.suite.examples import some_of

K = (SortKey("k"),)


def order_of(key: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """Return a key that sorts as Arrow does: NaN after numbers, null after everything."""

    def place(value: Any) -> tuple[int, Any]:
        if value is None:
            return (2, 0)
        return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)

    return tuple(place(value) for value in key)


def assert_ranges(keys: list[tuple[Any, ...]], of_row: list[int]) -> None:
    """Check that partitions are in the order of keys, and equal keys in one partition."""
    ordered = sorted(
        (order_of(key), partition) for key, partition in zip(keys, of_row, strict=True)
    )
    partitions = [partition for _, partition in ordered]
    assert partitions == sorted(partitions)
    assert len(dict(ordered)) == len(set(ordered))


COLUMNS = {
    "int": (pa.int64(), st.none() | st.integers(-3, 3)),
    "float": (pa.float64(), floats),
    "text": (pa.string(), st.none() | st.text("ab", max_size=2)),
}


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    """Draw rows of one to three columns with few distinct values, so that many are equal."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(COLUMNS[kind][1] for kind in kinds)), max_size=40))
    return pa.schema([(f"k{i}", COLUMNS[kind][0]) for i, kind in enumerate(kinds)]), rows


def table_of(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [
        pa.array([row[i] for row in rows], field.type, from_pandas=False)
        for i, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def batch_of_rows(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    batches = table_of(schema, rows).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


@settings(max_examples=some_of(300), derandomize=True)
@given(keyed_rows(), st.data(), st.integers(1, 8))
def test_ranges_in_order_hold_keys_in_order(
    drawn: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject, partitions: int
) -> None:
    schema, rows = drawn
    sampled = data.draw(st.lists(st.sampled_from(rows), max_size=30)) if rows else []
    boundaries = choose_boundaries(table_of(schema, sampled), ascending(schema.names), partitions)
    partitioner = RangePartitioner(ascending(schema.names), boundaries, partitions)
    assert_ranges(rows, placed(partitioner, batch_of_rows(schema, rows), partitions))


@settings(max_examples=some_of(200), derandomize=True)
@given(keyed_rows(), st.integers(1, 50))
def test_boundaries_are_sorted_and_distinct(
    drawn: tuple[pa.Schema, list[tuple[Any, ...]]], partitions: int
) -> None:
    schema, rows = drawn
    boundaries = choose_boundaries(table_of(schema, rows), ascending(schema.names), partitions)
    assert boundaries.schema == schema
    assert boundaries.num_rows <= partitions - 1
    keys = [order_of(tuple(row.values())) for row in boundaries.to_pylist()]
    assert all(before < after for before, after in pairwise(keys))


def test_partitions_are_about_even_if_there_are_many_keys() -> None:
    keys = pa.table({"k": np.random.default_rng(1).permutation(10_000)})
    boundaries = choose_boundaries(keys, K, 7)
    batch = keys.to_batches()[0]
    of_row = placed(RangePartitioner(K, boundaries, 7), batch, 7)
    counts = np.bincount(of_row, minlength=7)
    assert counts.max() - counts.min() <= 1


def test_a_row_on_a_boundary_begins_the_next_partition() -> None:
    boundaries = batch_of(k=pa.array([10, 20]))
    batch = batch_of(k=pa.array([9, 10, 11, 19, 20, 21, None]))
    partitioner = RangePartitioner(K, boundaries, 3)
    assert placed(partitioner, batch, 3) == [0, 1, 1, 1, 2, 2, 2]


def test_fewer_keys_than_partitions_leave_partitions_empty() -> None:
    keys = pa.table({"k": ["a", "b"] * 50})
    boundaries = choose_boundaries(keys, K, 10)
    of_row = placed(RangePartitioner(K, boundaries, 10), keys.to_batches()[0], 10)
    assert len(set(of_row)) == 2
    assert of_row[:2] * 50 == of_row


def test_without_a_sample_all_rows_go_to_the_first_partition() -> None:
    empty = pa.table({"k": pa.array([], pa.int64())})
    boundaries = choose_boundaries(empty, K, 4)
    assert boundaries.num_rows == 0
    batch = batch_of(k=pa.array([3, None, -1]))
    assert placed(RangePartitioner(K, boundaries, 4), batch, 4) == [0, 0, 0]


# A key that fills more than a range


@given(
    st.lists(
        st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, None]), max_size=30), min_size=1, max_size=8
    ),
    st.integers(1, 12),
)
def test_a_heavy_key_is_spread_in_the_order_of_its_rows(
    maps: list[list[int | None]], partitions: int
) -> None:
    """Partitions in order, each stably sorted, are the stably sorted input."""
    keys = pa.table({"k": pa.array([key for rows in maps for key in rows], pa.int64())})
    boundaries = choose_boundaries(keys, K, partitions, repeats=True)
    held: list[list[tuple[int | None, int]]] = [[] for _ in range(partitions)]
    number = 0
    for position, rows in enumerate(maps):
        partitioner = RangePartitioner(K, boundaries, partitions, position / len(maps))
        batch = pa.record_batch({"k": pa.array(rows, pa.int64())})
        for key, partition in zip(rows, partitioner.ids(batch).to_pylist(), strict=True):
            held[partition].append((key, number))
            number += 1

    def order(row: tuple[int | None, int]) -> tuple[bool, int, int]:
        return row[0] is None, row[0] or 0, row[1]

    found = [row for rows in held for row in sorted(rows, key=order)]
    assert found == sorted(found, key=order)


def test_a_heavy_key_is_alone_in_the_ranges_that_it_fills() -> None:
    keys = pa.table({"k": [0] * 10 + [1] * 70 + [2] * 20})
    boundaries = choose_boundaries(keys, K, 10, repeats=True)
    assert boundaries["k"].to_pylist() == [1] * 7 + [2, 2]
    batch = pa.record_batch({"k": [0, 1, 2]})
    placed = [
        RangePartitioner(K, boundaries, 10, place / 7).ids(batch).to_pylist() for place in range(7)
    ]
    assert placed == [[0, 1 + place, 8 if place < 4 else 9] for place in range(7)]
