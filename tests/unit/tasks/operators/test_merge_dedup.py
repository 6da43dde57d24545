"""One row is kept for each key of a result, or the rows are refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mrflight.compute.deduplication import deduplicate
from mrflight.errors import ColumnNotFoundError, KeyTypeError, OutputError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.merge_dedup import MergeDedup
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.suite.messages import refused


def rows(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


@pytest.mark.parametrize(
    ("values", "greatest"),
    [
        ([1, 3, 2], 1),
        ([None, -5, None], 1),
        ([1.0, math.nan, math.inf], 1),
        ([None, math.nan, -1.0], 1),
        (["b", "a", "ä"], 2),
        ([b"a", b"a\x00", b""], 1),
        ([False, True, None], 1),
    ],
)
def test_the_greatest_row_is_kept(values: list[Any], greatest: int) -> None:
    table = rows(k=[7, 7, 7, 8], at=[*values, values[0]], n=[0, 1, 2, 3])
    found = deduplicate(table, ["k"], "at")
    assert sorted(found["n"].to_pylist()) == [greatest, 3]


def test_equal_rows_become_one() -> None:
    nested = [{"x": [1, None]}, {"x": [1, None]}, {"x": []}]
    table = rows(k=["a", "a", "b"], at=[None, None, 1], f=[math.nan, math.nan, 0.0], s=nested)
    found = deduplicate(table, ["k"], "at").sort_by("k")
    assert found["k"].to_pylist() == ["a", "b"]
    assert found["s"].to_pylist() == nested[1:]


@pytest.mark.parametrize(
    "other", [{"v": "y"}, {"s": [2]}, {"v": None}], ids=["value", "nested", "null"]
)
def test_different_rows_that_tie_are_refused(other: dict[str, Any]) -> None:
    one = {"k": 1, "day": "mon", "at": 5, "v": "x", "s": [1]}
    table = pa.Table.from_pylist([one, {**one, "at": 4}, {**one, **other}, {**one, "k": 2}])
    with refused(OutputError, "output.order_by") as caught:
        deduplicate(table, ["k", "day"], "at")
    assert not caught.value.retryable


def test_ties_below_the_greatest_value_are_ignored() -> None:
    table = rows(k=[1, 1, 1], at=[4, 4, 5], v=["x", "y", "z"])
    assert deduplicate(table, ["k"], "at")["v"].to_pylist() == ["z"]


def test_without_an_order_no_key_may_occur_twice() -> None:
    assert deduplicate(rows(k=[2, 1]), ["k"], None)["k"].to_pylist() == [2, 1]
    with refused(OutputError, "output.keys"):
        deduplicate(rows(k=[1, 2, 1]), ["k"], None)


@pytest.mark.parametrize("values", [[0.0, -0.0], [math.nan, -math.nan]])
def test_equal_floats_are_one_key(values: list[float]) -> None:
    found = deduplicate(rows(k=values, at=[2, 1]), ["k"], "at")
    assert found["at"].to_pylist() == [2]


def test_a_null_key_is_refused() -> None:
    with refused(OutputError, "output.keys"):
        deduplicate(rows(a=[1, 2], b=[1, None]), ["a", "b"], None)


def result(unique_rows: MergeDedup, table: pa.Table, folder: Path, bytes_: int) -> pa.Table:
    reduce_spec = ReduceSpec(unique=unique_rows)
    batches = iter(table.to_batches(max_chunksize=100))
    schema, results = reduce_spec.apply(0, table.schema, batches, TaskMemory(bytes_, folder))
    return pa.Table.from_batches(results, schema)


def test_a_partition_larger_than_its_memory_is_split_between_keys(tmp_path: Path) -> None:
    count = 4000
    table = rows(k=[i % 1000 for i in range(count)], at=list(range(count)), v=["x" * 50] * count)
    found = result(MergeDedup(("k",), "at"), table, tmp_path, 60_000)
    assert sorted(found["at"].to_pylist()) == list(range(3000, 4000))
    assert list(tmp_path.iterdir()) == []


def test_a_result_without_rows_has_a_schema(tmp_path: Path) -> None:
    table = rows(k=[1], v=["x"]).slice(0, 0)
    assert result(MergeDedup(("k",)), table, tmp_path, 1 << 20).schema == table.schema


def test_missing_columns_and_columns_without_order_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("l", pa.list_(pa.int64()))])
    with refused(ColumnNotFoundError, "output.keys"):
        MergeDedup(("id",)).check(schema, "the rows")
    with refused(ColumnNotFoundError, "output.order_by"):
        MergeDedup(("k",), "at").check(schema, "the rows")
    with pytest.raises(KeyTypeError, match=r"'l'"):
        MergeDedup(("l",)).check(schema, "the rows")
    with pytest.raises(KeyTypeError, match=r"'l'"):
        MergeDedup(("k",), "l").check(schema, "the rows")


def test_a_function_that_returns_keys_of_other_partitions_is_refused(tmp_path: Path) -> None:
    moved = MergeDedup(("k", "n"), None, ("k",), partitions=1000)
    tables = iter([rows(k=[1, 2, 3], n=[1, 2, 3])])
    with (
        ScratchFolder("test", tmp_path) as scratch,
        refused(OutputError, "reduce.function"),
    ):
        list(moved.results(0, tables, 1 << 20, scratch))
