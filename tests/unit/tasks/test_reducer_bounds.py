"""Groups that are spilled to local files equal the groups that are made in memory."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mrflight.compute.sorting import sort_indices
from mrflight.config.aggregates import Aggregate
from mrflight.config.sort_key import ascending
from mrflight.errors import JobError
from mrflight.tasks.operators.spill_partitions import GracePartitioner
from mrflight.tasks.reducer import ReduceSpec
from tests.support.queries.reductions import (
    COMBINABLE,
    DISTINCT,
    LITTLE,
    MUCH,
    ROWS,
    assert_same_groups,
    by_key,
    every,
    reduce,
    table_of,
)
from tests.support.suite.messages import refused

SEVERAL_DISTINCT = (*every(), Aggregate("texts", "count_distinct", "text"))


@pytest.fixture
def spill_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of all partitioners that write local files."""
    names: list[str] = []
    make = GracePartitioner.__init__

    def noted(self: GracePartitioner, scratch: Any, name: str, *rest: Any) -> None:
        names.append(name)
        make(self, scratch, name, *rest)

    monkeypatch.setattr(GracePartitioner, "__init__", noted)
    return names


@pytest.mark.parametrize("distinct", [1, 20, 1000, 10**9])
@pytest.mark.parametrize(
    "aggregates", [(), COMBINABLE, DISTINCT, SEVERAL_DISTINCT], ids=lambda each: str(len(each))
)
def test_spilled_groups_are_the_same(
    distinct: int, aggregates: tuple[Aggregate, ...], folder: Path
) -> None:
    table = table_of(distinct)
    reduce_spec = ReduceSpec(("k",), aggregates)
    wanted = reduce(reduce_spec, table, MUCH, folder)
    assert_same_groups(reduce(reduce_spec, table, LITTLE, folder), wanted)


def test_few_keys_need_no_files(folder: Path, spill_names: list[str]) -> None:
    reduce(ReduceSpec(("k",), COMBINABLE), table_of(20), LITTLE, folder)
    assert spill_names == []


def test_a_partition_that_fits_needs_no_files(folder: Path, spill_names: list[str]) -> None:
    table = table_of(10**9)
    for reduce_spec in (
        ReduceSpec(("k",), SEVERAL_DISTINCT),
        ReduceSpec(sort_by=ascending("k")),
        ReduceSpec(("k",), COMBINABLE, sort_by=ascending("k")),
    ):
        reduce(reduce_spec, table, MUCH, folder)
    assert spill_names == []


def test_large_spill_partitions_are_partitioned_again(folder: Path, spill_names: list[str]) -> None:
    table = table_of(10**9, 5000)
    reduce_spec = ReduceSpec(("k",), (Aggregate("x", "sum", "v"),))
    result = by_key(reduce(reduce_spec, table, LITTLE // 8, folder))
    assert {name.count("-") for name in spill_names} == {0, 1}
    assert result == by_key(reduce(reduce_spec, table, MUCH, folder))


def test_distinct_values_of_one_large_key_are_counted_in_partitions(
    folder: Path, spill_names: list[str]
) -> None:
    table = table_of(1, ROWS, values=10**9)
    result = reduce(ReduceSpec(("k",), DISTINCT), table, LITTLE, folder)
    assert result.to_pydict() == {"k": ["key 0"], "n": [len(table["v"].unique())]}
    assert any("values" in name for name in spill_names)


def test_distinct_values_of_a_key_and_of_floats_and_nulls(folder: Path) -> None:
    values = [0.0, -0.0, math.nan, -math.nan, None, 1.0] * 1000
    table = pa.table({"k": pa.array(["k"] * 6000), "v": values})
    specs = (*DISTINCT, Aggregate("keys", "count_distinct", "k"))
    result = reduce(ReduceSpec(("k",), specs), table, LITTLE, folder)
    assert result.to_pydict() == {"k": ["k"], "n": [3], "keys": [1]}


@pytest.mark.parametrize("function", ["mean", "sum"])
def test_decimals_are_exact_whatever_the_memory(function: str, folder: Path) -> None:
    random = np.random.default_rng(1)
    cents = [Decimal(int(number)).scaleb(-2) for number in random.integers(-999, 999, ROWS)]
    keys = random.integers(0, 4, ROWS)
    table = pa.table({"k": keys, "v": pa.array(cents, pa.decimal128(9, 2))})
    specs = (Aggregate("x", function, "v"), *DISTINCT)  # type: ignore[arg-type]
    wanted = by_key(reduce(ReduceSpec(("k",), specs), table, MUCH, folder))
    assert by_key(reduce(ReduceSpec(("k",), specs), table, LITTLE, folder)) == wanted


@pytest.mark.parametrize("unit", [None, "us"])
def test_partial_sums_may_be_wider_than_the_result(unit: str | None, folder: Path) -> None:
    most = 2**63 - 1
    kind = pa.duration(unit) if unit else pa.int64()
    values = pa.array([most] * 3000 + [-most] * 3000 + [7], pa.int64()).view(kind)
    table = pa.table({"k": ["k"] * 6001, "v": values})
    specs = (Aggregate("x", "sum", "v"), Aggregate("last", "last", "v"))
    result = reduce(ReduceSpec(("k",), specs), table, LITTLE, folder)
    assert result["x"].cast(pa.int64()).to_pylist() == [7]
    unique = pa.table({"k": np.arange(6001) % 3000, "v": values})
    little, much = (
        reduce(ReduceSpec(("k",), specs), unique, memory, folder) for memory in (LITTLE, MUCH)
    )
    assert by_key(little) == by_key(much)


def test_a_sum_that_does_not_fit_is_an_error_and_leaves_no_files(folder: Path) -> None:
    table = pa.table({"k": np.arange(6000) % 3000, "v": np.full(6000, 2**63 - 1)})
    specs = (Aggregate("x", "sum", "v"),)
    with refused(JobError, "reduce.aggregate.x"):
        reduce(ReduceSpec(("k",), specs), table, LITTLE, folder)


@pytest.mark.slow_but(
    "whole-5-1073741824",
    "merged-5-1073741824",
    "merged-1000000000-1073741824",
    "whole-1000000000-1073741824",
)
@pytest.mark.parametrize("memory_bytes", [LITTLE, MUCH])
@pytest.mark.parametrize("distinct", [5, 10**9])
@pytest.mark.parametrize("aggregates", [COMBINABLE, SEVERAL_DISTINCT], ids=["merged", "whole"])
def test_rows_that_maps_have_combined(
    memory_bytes: int, distinct: int, aggregates: tuple[Aggregate, ...], folder: Path
) -> None:
    table = table_of(distinct)
    reduce_spec = ReduceSpec(("k",), aggregates, combines=True)
    sent: list[pa.RecordBatch] = []
    for start in range(0, ROWS, ROWS // 3):
        combiner = reduce_spec.combiner(2**20)
        assert combiner is not None
        sent += combiner(table.slice(start, ROWS // 3).to_batches(max_chunksize=100))
    shuffled = pa.Table.from_batches(sent)
    assert "row" not in shuffled.column_names
    wanted = reduce(ReduceSpec(("k",), aggregates), table, MUCH, folder)
    assert_same_groups(reduce(reduce_spec, shuffled, memory_bytes, folder), wanted)


@pytest.mark.slow_but("1073741824-group_by2", "1073741824-group_by0", "1073741824-group_by1")
@pytest.mark.parametrize("group_by", [("k",), ("k", "v"), ("v", "k", "row")])
@pytest.mark.parametrize("memory_bytes", [LITTLE, MUCH])
def test_groups_are_sorted_if_an_order_is_set(
    group_by: tuple[str, ...], memory_bytes: int, folder: Path
) -> None:
    table = table_of(3000)
    reduce_spec = ReduceSpec(
        group_by, (Aggregate("rows", "sum", "row"),), sort_by=ascending(group_by)
    )
    result = reduce(reduce_spec, table, memory_bytes, folder)
    assert result["rows"].combine_chunks().sum().as_py() == sum(range(ROWS))
    assert sort_indices(result, ascending(group_by)).to_pylist() == list(range(result.num_rows))
    distinct = table.group_by(list(group_by)).aggregate([])
    assert result.num_rows == distinct.num_rows


def test_a_result_without_rows_has_a_schema(folder: Path) -> None:
    table = table_of(1).slice(0, 0)
    for reduce_spec in (
        ReduceSpec(("k",), COMBINABLE),
        ReduceSpec(("k",), SEVERAL_DISTINCT, sort_by=ascending("k")),
        ReduceSpec(sort_by=ascending("v")),
        ReduceSpec(),
    ):
        result = reduce(reduce_spec, table, LITTLE, folder)
        wanted = reduce(reduce_spec, table_of(1), MUCH, folder)
        assert (result.num_rows, result.schema) == (0, wanted.schema)
