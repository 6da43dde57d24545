"""Rows that are equal in all columns become one, as with DISTINCT in DuckDB."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.config.sort_key import SortKey
from mrflight.errors import KeyTypeError, SchemaMismatchError
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.queries.sorted_tables import in_batches, query_duckdb, table_of, tables
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

MUCH = 2**30
DISTINCT = ReduceSpec(distinct=True, combines=True)


def counted(table: pa.Table) -> Counter[str]:
    """Count rows by their texts, because NaN does not equal NaN. -0.0 is counted as 0.0."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return Counter(
        repr(tuple(0.0 if isinstance(each, float) and each == 0 else each for each in row))
        for row in rows
    )


def distinct(
    table: pa.Table, memory_bytes: int, folder: Path, each: int, reduce_spec: ReduceSpec = DISTINCT
) -> pa.Table:
    """Return the result of combining in maps, partitioning, and reducing each partition."""
    spec = PartitionerSpec("hash", (), 3)
    spec.check(table.schema)
    combiner = reduce_spec.combiner(2**12)
    schema = canonical_schema(table.schema)
    rows = (to_canonical(batch, schema) for batch in in_batches(table, each))
    sent = list(rows if combiner is None else combiner(rows))
    placing, parts = spec.partitioner(0), []
    for number in range(3):
        of_part = [
            batch.filter(pa.array(placing.ids(batch).to_numpy() == number)) for batch in sent
        ]
        task_memory = TaskMemory(memory_bytes, folder)
        found, results = reduce_spec.apply(number, schema, iter(of_part), task_memory)
        assert found == schema
        parts.append(pa.Table.from_batches(results, found))
    return pa.concat_tables(parts)


@settings(max_examples=some_of(25), derandomize=True, deadline=None)
@given(table=tables(), data=st.data())
def test_distinct_rows_match_duckdb(
    table: pa.Table, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = table.drop_columns(["row"])
    DISTINCT.check(table.schema)
    memory_bytes, each = (
        data.draw(st.sampled_from([300, 3000])),
        data.draw(st.sampled_from([1, 7, 80])),
    )
    reduce_spec = ReduceSpec(distinct=True, combines=data.draw(st.booleans()))
    found = distinct(table, memory_bytes, tmp_path_factory.mktemp("distinct"), each, reduce_spec)
    assert counted(found) == counted(query_duckdb("select distinct * from t", table))


@pytest.mark.parametrize("combines", [True, False])
def test_rows_that_do_not_fit_are_spilled(combines: bool, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(0, 3000, 20_000)
    table = pa.table({"k": rows, "t": [f"text {row % 7}" for row in rows]})
    reduce_spec = ReduceSpec(distinct=True, combines=combines)
    task_memory = TaskMemory(100_000, tmp_path)
    _, results = reduce_spec.apply(0, table.schema, in_batches(table, 300), task_memory)
    first = next(results)
    assert list(tmp_path.rglob("*.arrows"))
    found = pa.Table.from_batches([first, *results])
    assert list(tmp_path.rglob("*.arrows")) == []
    assert sorted(found["k"].to_pylist()) == sorted(set(rows.tolist()))


def test_one_frequent_row_needs_no_files(tmp_path: Path) -> None:
    table = table_of(["text", "float", "nothing"], 4000, seed=1, skew=1.0)
    table = table.drop_columns(["row"])
    combiner = DISTINCT.combiner(2**20)
    assert combiner is not None
    assert sum(batch.num_rows for batch in combiner(in_batches(table, 100))) == 1
    _, results = DISTINCT.apply(0, table.schema, in_batches(table, 100), TaskMemory(6000, tmp_path))
    first = next(results)
    assert list(tmp_path.rglob("*.arrows")) == []
    assert [first.num_rows, *(batch.num_rows for batch in results)] == [1]


def test_distinct_rows_are_sorted_and_limited(tmp_path: Path) -> None:
    table = pa.table({"k": [3, 1, 3, 2, 1], "f": [0.0, 1.0, -0.0, 2.0, 1.0]})
    reduce_spec = ReduceSpec(distinct=True, sort_by=(SortKey("k", descending=True),), limit=2)
    reduce_spec = pickle.loads(pickle.dumps(reduce_spec))
    reduce_spec.check(table.schema)
    assert reduce_spec.result_schema(table.schema) == table.schema
    assert distinct(table, MUCH, tmp_path, 2, reduce_spec).num_rows == 3  # at most two of each part
    _, batches = reduce_spec.apply(
        0, table.schema, iter(table.to_batches()), TaskMemory(MUCH, tmp_path)
    )
    assert pa.Table.from_batches(batches).to_pydict() == {"k": [3, 2], "f": [0.0, 2.0]}


def test_columns_that_cannot_be_compared_are_refused() -> None:
    schema = pa.schema({"k": pa.int8(), "where": pa.struct({"x": pa.int8()})})
    with refused(KeyTypeError, "reduce.distinct"):
        DISTINCT.check(schema)
    with refused(SchemaMismatchError, "reduce.distinct"):
        DISTINCT.check(pa.schema([("k", pa.int8()), ("k", pa.int8())]))
