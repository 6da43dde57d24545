"""Rows are sorted in little memory, through local files, whatever their keys."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.sorting import sort_indices
from mrflight.config.sort_key import ascending
from mrflight.tasks.operators.external_sort import ExternalSort
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.queries.reductions import LITTLE, ROWS, reduce
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(40), derandomize=True)

KEYS = {
    "few": lambda row: row * 7919 % 5,
    "one": lambda row: 1,
    "sorted": lambda row: row,
    "backwards": lambda row: -row,
    "mixed": lambda row: row * 7919 % 6007,
    "one and others": lambda row: 500 if row % 10 else row % 1000,
    "at the end": lambda row: 10**6 if row > 300 else row,
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("memory_bytes", [LITTLE // 4, LITTLE])
def test_sorted_rows_are_the_same(keys: str, memory_bytes: int, folder: Path) -> None:
    table = pa.table({"k": [KEYS[keys](row) for row in range(ROWS)], "row": range(ROWS)})
    result = reduce(ReduceSpec(sort_by=ascending("k")), table, memory_bytes, folder)
    assert result == table.take(sort_indices(table, ascending("k")))


@examples
@given(data=st.data())
def test_any_rows_are_sorted(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("sort")
    float_ = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5])
    text = st.none() | st.sampled_from(["", "a", "b", "ä"])
    rows = data.draw(st.lists(st.tuples(float_, text), max_size=60))
    table = pa.table(
        {
            "x": pa.array([x for x, _ in rows], pa.float64(), from_pandas=False),
            "t": pa.array([t for _, t in rows], pa.string()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )
    names = data.draw(st.sampled_from([("x",), ("t",), ("x", "t"), ("t", "x")]))
    result = reduce(
        ReduceSpec(sort_by=ascending(names)), table, data.draw(st.integers(1, 3000)), folder, 7
    )
    wanted = table.take(sort_indices(table, ascending(names)))
    assert result["row"].to_pylist() == wanted["row"].to_pylist()


def test_the_rows_of_a_single_key_are_streamed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"k": np.ones(ROWS, np.int64), "row": np.arange(ROWS)})
    sorted_rows: list[int] = []
    sort = ExternalSort._sort

    def noted(self: ExternalSort, rows: pa.Table) -> pa.Table:
        sorted_rows.append(rows.num_rows)
        return sort(self, rows)

    monkeypatch.setattr(ExternalSort, "_sort", noted)
    assert reduce(ReduceSpec(sort_by=ascending("k")), table, LITTLE // 4, folder) == table
    assert sorted_rows == []


@pytest.mark.parametrize("seed", range(6))
def test_zeros_of_both_signs_sort_as_one_key(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    zeros = {name: random.choice([0.0, -0.0], 400) for name in ("a", "b")}
    table = pa.table({**zeros, "v": range(400)})
    reduce_spec = ReduceSpec(sort_by=ascending("ab"))
    batches = iter(table.to_batches(max_chunksize=97))
    _, results = reduce_spec.apply(0, table.schema, batches, TaskMemory(18_000, folder))
    assert pa.Table.from_batches(results)["v"].to_pylist() == list(range(400))
