"""The first rows in an order match DuckDB, in maps and in reduces, in little memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.sort_key import SortKey, ascending
from mrflight.errors import ColumnNotFoundError, SchemaMismatchError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.top_k import TopK
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.commands.own_process import in_own_process
from tests.support.queries.sorted_tables import answered, in_batches, orders, sql_of, tables
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

MUCH = 2**30


def first_of(wanted: TopK, table: pa.Table, rows_bytes: int, each: int, folder: Path) -> Rows:
    with ScratchFolder("first", folder) as scratch:
        parts = list(wanted.results(in_batches(table, each), rows_bytes, scratch))
    assert list(folder.rglob("*.arrows")) == []
    return [row for part in parts for row in part["row"].to_pylist()]


Rows = list[int]


@settings(max_examples=some_of(50), derandomize=True, deadline=None)
@given(table=tables(most_rows=120), data=st.data())
def test_first_rows_match_duckdb(
    table: pa.Table, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = data.draw(orders(table.column_names[:-1]))
    wanted = TopK(data.draw(st.sampled_from([0, 1, 3, 20, 500])), keys)
    each, rows_bytes = data.draw(st.sampled_from([1, 7, 50])), data.draw(st.sampled_from([1, 900]))
    folder = tmp_path_factory.mktemp("first")
    answer = answered(f"select row from t order by {sql_of(keys)}, row limit {wanted.limit}", table)
    assert first_of(wanted, table, MUCH, each, folder) == answer
    assert first_of(wanted, table, rows_bytes, each, folder) == answer
    sent: list[pa.RecordBatch] = []
    half = table.num_rows // 2
    for part in (table.slice(0, half), table.slice(half)):
        combined = list(wanted.combiner(rows_bytes)(in_batches(part, each)))
        assert len(combined) >= 1
        sent += combined
    assert first_of(wanted, pa.Table.from_batches(sent), MUCH, each, folder) == answer


def test_rows_that_do_not_fit_are_spilled(tmp_path: Path) -> None:
    keys = np.random.default_rng(5).integers(0, 500, 20_000)
    table = pa.table({"k": keys, "row": np.arange(20_000)})
    with ScratchFolder("first", tmp_path) as scratch:
        wanted = TopK(5000, (SortKey("k", descending=True),))
        parts = wanted.results(in_batches(table, 700), 20_000, scratch)
        first = next(parts)
        assert list(scratch.root.rglob("*.arrows"))
        found = pa.concat_tables([first, *parts])["row"]
    assert found.to_numpy().tolist() == np.argsort(-keys, kind="stable")[:5000].tolist()


def test_few_of_many_rows_are_held() -> None:
    """A map of a million rows sends ten, and holds no more than two batches at a time."""
    in_own_process(send_ten_of_a_million)


def send_ten_of_a_million() -> None:
    rows = np.random.default_rng(2).permutation(2**20)
    most = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for start in range(0, len(rows), 2**14):
            most = max(most, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"k": pa.array(rows[start : start + 2**14].tolist())})

    before = pa.total_allocated_bytes()
    (_, sent) = TopK(10, ascending("k")).combiner(2**20)(watched())
    assert sent["k"].to_pylist() == list(range(10))
    assert most < 4 * 8 * 2**14


def test_without_an_order_reading_stops_at_the_limit(tmp_path: Path) -> None:
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for start in range(0, 1000, 10):
            read += 1
            yield pa.record_batch({"row": list(range(start, start + 10))})

    combined = TopK(25).combiner(MUCH)(batches())
    assert pa.Table.from_batches(combined)["row"].to_pylist() == list(range(25))
    assert read == 3
    with ScratchFolder("first", tmp_path) as scratch:
        (table,) = TopK(4).results(batches(), MUCH, scratch)
    assert table["row"].to_pylist() == [0, 1, 2, 3]
    assert read == 4


def test_ties_are_in_input_order(tmp_path: Path) -> None:
    table = pa.table({"k": [2, 1, 1, 2, 1, 1], "row": range(6)})
    for each in (1, 2, 6):
        assert first_of(TopK(3, ascending("k")), table, MUCH, each, tmp_path) == [1, 2, 4]


@pytest.mark.parametrize("first", [SortKey("k"), SortKey("k", descending=True)])
def test_a_row_that_precedes_by_its_second_key_is_kept(first: SortKey, tmp_path: Path) -> None:
    table = pa.table({"k": [1] * 50, "l": range(50, 0, -1), "row": range(50)})
    wanted = TopK(2, (first, SortKey("l")))
    assert first_of(wanted, table, MUCH, 3, tmp_path) == [49, 48]


def test_batches_with_different_columns_are_refused() -> None:
    batches = [pa.record_batch({"k": [1]}), pa.record_batch({"k": ["a"]})]
    with refused(SchemaMismatchError):
        list(TopK(1, ascending("k")).combiner(MUCH)(batches))


@pytest.mark.parametrize("sort_by", [(), (SortKey("v", descending=True),)])
def test_a_reduce_with_a_limit(sort_by: tuple[SortKey, ...], tmp_path: Path) -> None:
    """The limit applies to sorted rows, and to rows in the order of the input."""
    table = pa.table({"k": ["a", "b", "c", "a"], "v": [1, 5, 3, 1]})
    reduce_spec = pickle.loads(pickle.dumps(ReduceSpec(sort_by=sort_by, limit=2)))
    assert not (reduce_spec.keeps_rows)
    assert not (reduce_spec.sorts_rows)
    reduce_spec.check(table.schema)
    schema, batches = reduce_spec.apply(
        0, table.schema, iter(table.to_batches()), TaskMemory(MUCH, tmp_path)
    )
    assert schema == table.schema
    assert pa.Table.from_batches(batches)["v"].to_pylist() == ([5, 3] if sort_by else [1, 5])
    with refused(ColumnNotFoundError, "reduce.sort_by"):
        ReduceSpec(("k",), sort_by=(SortKey("v"),)).check(table.schema)
