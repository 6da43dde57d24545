"""Rows are sorted as DuckDB sorts them: by every type, in both directions, nulls at either end."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.sort_codes import NormalizedKeys, sort_codes
from mrflight.compute.sorting import check_sortable, is_new, sort_indices
from mrflight.config.sort_key import SortKey, ascending
from mrflight.errors import ColumnNotFoundError
from mrflight.shuffle.client.range_partitioner import RangePartitioner, choose_boundaries
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.external_sort import ExternalSort
from tests.support.queries.partitioning import layouts
from tests.support.queries.sorted_tables import (
    answered,
    in_batches,
    orders,
    sql_of,
    table_of,
    tables,
)
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused


@settings(max_examples=some_of(100), derandomize=True, deadline=None)
@given(table=tables(), data=st.data())
def test_rows_are_in_duckdbs_order(table: pa.Table, data: st.DataObject) -> None:
    keys = data.draw(orders(table.column_names[:-1]))
    check_sortable(table.schema, keys)
    rows = data.draw(st.sampled_from([1, 7, 80]))
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=rows), table.schema)
    wanted = answered(f"select row from t order by {sql_of(keys)}, row", table)
    assert sort_indices(chunked, keys).to_pylist() == wanted


@settings(max_examples=some_of(40), derandomize=True, deadline=None)
@given(table=tables(), data=st.data())
def test_sorted_ranges_are_together_in_duckdbs_order(
    table: pa.Table, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Maps partition their rows by range, and each range is sorted in little memory, as in a job.

    Ties are in the order of the maps, and in the order of the rows of each map.
    """
    keys = data.draw(orders(table.column_names[:-1]))
    partitions, maps = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4))
    each = data.draw(st.sampled_from([3, 20]))
    schema = canonical_schema(table.schema)
    sample = pa.Table.from_batches(
        [to_canonical(batch, schema).slice(0, 2) for batch in in_batches(table, each)]
    )
    boundaries = choose_boundaries(sample, keys, partitions, repeats=True)
    ranges: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
    share = max(1, -(-table.num_rows // maps))
    for number in range(maps):
        placing = RangePartitioner(keys, boundaries, partitions, number / maps)
        for batch in in_batches(table.slice(number * share, share), each):
            ids = placing.ids(batch).to_numpy()
            for partition in range(partitions):
                part = to_canonical(batch, schema).filter(pa.array(ids == partition))
                ranges[partition].append(part)
    folder, found = tmp_path_factory.mktemp("ranges"), []
    for batches in ranges:
        with ScratchFolder("sort", folder) as scratch:
            for part in ExternalSort(keys, 300, scratch).results(iter(batches)):
                found += part["row"].to_pylist()
    assert found == answered(f"select row from t order by {sql_of(keys)}, row", table)


@pytest.mark.slow_but("text desc")
@pytest.mark.parametrize("keys", ["wide desc", "text desc", "float nulls", "int and at"])
def test_many_rows_are_sorted_through_files(keys: str, tmp_path: Path) -> None:
    order = {
        "wide desc": (SortKey("wide0", descending=True), SortKey("text1")),
        "text desc": (SortKey("text1", descending=True, nulls_first=True),),
        "float nulls": (SortKey("float2", descending=True), SortKey("bool3")),
        "int and at": (SortKey("int4", nulls_first=True), SortKey("at5", descending=True)),
    }[keys]
    table = table_of(["wide", "text", "float", "bool", "int", "at"], 3000, seed=1, skew=0.3)
    with ScratchFolder("sort", tmp_path) as scratch:
        sort = ExternalSort(order, table.nbytes // 20, scratch)
        parts = sort.results(in_batches(table, 100))
        first = next(parts)
        assert list(scratch.root.rglob("*.arrows"))
        found = pa.concat_tables([first, *parts])["row"].to_pylist()
    assert found == answered(f"select row from t order by {sql_of(order)}, row", table)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, None, math.nan, -0.0, 0.0, -1.5], pa.float16(), from_pandas=False),
        pa.array([Decimal(10) ** 60, None, -(Decimal(10) ** 60), Decimal(1)], pa.decimal256(70, 2)),
        pa.array([Decimal("1.5"), None, Decimal("-1.5")], pa.decimal32(5, 2)),
        pa.array([3, None, -3], pa.duration("ns")),
        pa.array([b"ba", None, b"ab"], pa.binary(2)),
        pa.array(["b", None, "a", "b"], pa.string_view()),
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["b", "a"])),
    ],
    ids=lambda column: str(column.type) if isinstance(column, pa.Array) else str(column),
)
def test_types_that_duckdb_does_not_read_are_sorted(column: pa.Array, descending: bool) -> None:
    values = column.to_pylist()

    def place(row: int) -> tuple[bool, Any]:
        is_nan = isinstance(values[row], float) and math.isnan(values[row])
        return is_nan, 0.0 if is_nan else values[row]

    valid = [row for row, value in enumerate(values) if value is not None]
    nulls = [row for row, value in enumerate(values) if value is None]
    found = sort_indices(pa.table({"k": column}), [SortKey("k", descending)]).to_pylist()
    assert found == sorted(valid, key=place, reverse=descending) + nulls


@settings(max_examples=some_of(50), derandomize=True)
@given(
    st.lists(st.tuples(*[st.sampled_from([0, 1, 2**63, 2**64 - 1])] * 4), max_size=40),
    st.integers(1, 4),
)
def test_columns_of_more_than_64_bits_together_are_sorted(
    rows: list[tuple[int, ...]], columns: int
) -> None:
    """Columns are replaced by their ranks, and even those of two columns may exceed 64 bits."""
    table = pa.table(
        {f"{i}": pa.array([row[i] for row in rows], pa.uint64()) for i in range(columns)}
    )
    found = sort_indices(table, ascending(table.column_names)).to_pylist()
    assert found == sorted(range(len(rows)), key=lambda row: rows[row][:columns])


def test_codes_are_as_small_as_possible() -> None:
    table = pa.table({"a": [10, 12, None, 10], "b": [7, 7, 8, 8]})
    codes = sort_codes(table, ascending("ab"))
    assert (codes.values.tolist(), codes.largest) == ([0, 4, 7, 1], 7)
    assert codes.ranks().values.tolist() == [0, 2, 3, 1]
    assert NormalizedKeys(np.empty(0, np.uint64), 0).order().tolist() == []


def test_rows_that_differ_from_the_previous_row_are_found() -> None:
    table = pa.table({"x": pa.array([0.0, -0.0, math.nan, math.nan, None, None])})
    assert is_new(table).to_pylist() == [True, False, True, False, True, False]


def test_strings_have_the_same_order_in_every_layout() -> None:
    values = ["b", None, "", "a", "\xe4", "b"]
    for column in layouts(values):
        assert sort_indices(pa.table({"k": column}), ascending("k")).to_pylist() == [
            2, 3, 0, 5, 4, 1,
        ]  # fmt: skip


def test_a_duplicate_sort_column_is_refused() -> None:
    schema = pa.schema([("k", pa.int8()), ("k", pa.int8())])
    with refused(ColumnNotFoundError, "reduce.sort_by"):
        check_sortable(schema, ascending("k"), "reduce.sort_by: a row")
