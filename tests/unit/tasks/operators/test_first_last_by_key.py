"""The row that is kept of each key matches DuckDB, in maps and in reduces."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.sort_key import SortKey, ascending
from mrflight.errors import ColumnNotFoundError, KeyTypeError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.first_last_by_key import FirstLastByKey, Which
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
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

MUCH = 2**30


def kept(
    wanted: FirstLastByKey, table: pa.Table, rows_bytes: int, each: int, folder: Path
) -> list[int]:
    with ScratchFolder("kept", folder) as scratch:
        parts = list(wanted.results(in_batches(table, each), rows_bytes, scratch))
    assert list(folder.rglob("*.arrows")) == []
    return sorted(row for part in parts for row in part["row"].to_pylist())


@settings(max_examples=some_of(40), derandomize=True, deadline=None)
@given(table=tables(most_columns=4), data=st.data())
def test_kept_rows_match_duckdb(
    table: pa.Table, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = table.column_names[:-1]
    key = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    others = [name for name in names if name not in key]
    # The row's number tells ties apart, as the only column left or as the last in the order.
    order_by = data.draw(orders(others)) if others and data.draw(st.booleans()) else ()
    order_by = (*order_by, SortKey("row", data.draw(st.booleans())))
    wanted = FirstLastByKey(tuple(key), data.draw(st.sampled_from(["first", "last"])), order_by)
    wanted.check(table.schema, "a row")
    backwards = [SortKey(k.column, not k.descending, not k.nulls_first) for k in order_by]
    sql = sql_of(order_by if wanted.keep == "first" else backwards)
    by = ", ".join(f'"{name}"' for name in key)
    answer = answered(
        f"select row from t qualify row_number() over (partition by {by} order by {sql}) = 1"
        " order by row",
        table,
    )
    folder, each = tmp_path_factory.mktemp("kept"), data.draw(st.sampled_from([1, 7, 80]))
    assert kept(wanted, table, MUCH, each, folder) == answer
    assert kept(wanted, table, data.draw(st.sampled_from([50, 800])), each, folder) == answer
    sent = list(wanted.combiner(2**10)(in_batches(table, each)))
    assert kept(wanted, pa.Table.from_batches(sent), MUCH, each, folder) == answer


@pytest.mark.parametrize("keep", ["first", "last"])
def test_without_an_order_the_order_of_the_input_counts(keep: Which, tmp_path: Path) -> None:
    table = table_of(["text", "near"], 2000, seed=3, skew=0.2)
    first: dict[Any, int] = {}
    for row in table.to_pylist()[:: 1 if keep == "first" else -1]:
        first.setdefault((row["text0"], row["near1"]), row["row"])
    wanted = FirstLastByKey(("text0", "near1"), keep)
    for rows_bytes in (300, MUCH):
        assert kept(wanted, table, rows_bytes, 64, tmp_path) == sorted(first.values())
    sent = list(wanted.combiner(2**20)(in_batches(table, 64)))
    assert sum(batch.num_rows for batch in sent) == len(first)
    assert kept(wanted, pa.Table.from_batches(sent), MUCH, 64, tmp_path) == sorted(first.values())


@pytest.mark.parametrize("keep", ["first", "last"])
def test_ties_do_not_depend_on_the_order_of_the_input(keep: Which, tmp_path: Path) -> None:
    """Attempts may get their rows in different orders, so the other columns break ties."""
    random = np.random.default_rng(4)
    table = pa.table(
        {
            "k": random.integers(0, 50, 1000),
            "at": random.integers(0, 2, 1000),
            "x": random.choice([math.nan, 0.5, 1.0], 1000),
            "list": [[row] for row in range(1000)],
            "text": random.choice(["a", "b", "c"], 1000),
            "row": random.permutation(1000),
        }
    )
    wanted = FirstLastByKey(("k",), keep, ascending(["at"]))
    once = kept(wanted, table, MUCH, 100, tmp_path)
    assert len(once) == 50
    for _ in range(3):
        shuffled = table.take(pa.array(random.permutation(1000)))
        assert kept(wanted, shuffled, 5000, 90, tmp_path) == once


@pytest.mark.parametrize("distinct", [1, 50, 20_000])
def test_rows_that_do_not_fit_are_spilled(distinct: int, tmp_path: Path) -> None:
    """If the kept rows fit into memory, as with few keys, nothing is spilled."""
    keys = np.arange(20_000) * 7919 % distinct
    table = pa.table({"k": keys, "row": np.arange(20_000)})
    wanted = FirstLastByKey(("k",), "last", ascending(["row"]))
    with ScratchFolder("kept", tmp_path) as scratch:
        parts = wanted.results(in_batches(table, 500), 20_000, scratch)
        first = next(parts)
        assert bool(list(scratch.root.rglob("*.arrows"))) == (distinct == 20_000)
        found = pa.concat_tables([first, *parts])
    assert found.num_rows == distinct
    assert sorted(found["row"].to_pylist()) == list(range(20_000 - distinct, 20_000))


def test_a_reduce_that_keeps_one_row_of_each_key(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", None, "a", None], "v": [1, 2, 3, None]})
    kept = FirstLastByKey(("k",), "last", (SortKey("v", nulls_first=True),))
    reduce_spec = ReduceSpec(kept=kept, combines=True, sort_by=ascending("v"), limit=5)
    reduce_spec = pickle.loads(pickle.dumps(reduce_spec))
    reduce_spec.check(table.schema)
    assert reduce_spec.partials(table.schema) is None
    assert reduce_spec.result_schema(table.schema) == table.schema
    assert not (reduce_spec.keeps_rows)
    assert not (reduce_spec.sorts_rows)
    combiner = reduce_spec.combiner(2**20)
    assert combiner is not None
    sent = list(combiner(table.to_batches()))
    for batches in (table.to_batches(), sent, []):
        task_memory = TaskMemory(MUCH, tmp_path)
        schema, results = reduce_spec.apply(0, table.schema, iter(batches), task_memory)
        rows = pa.Table.from_batches(results, schema).to_pylist()
        assert rows == ([{"k": None, "v": 2}, {"k": "a", "v": 3}] if batches else [])


def test_missing_columns_and_columns_without_order_are_refused() -> None:
    schema = pa.schema({"k": pa.int8(), "l": pa.list_(pa.int8())})
    with refused(ColumnNotFoundError, "reduce.keep"):
        FirstLastByKey(("x",), "first").check(schema, "a row")
    with pytest.raises(KeyTypeError, match="'l'"):
        FirstLastByKey(("l",), "first").check(schema, "a row")
    with refused(ColumnNotFoundError, "reduce.order_by"):
        FirstLastByKey(("k",), "first", ascending("x")).check(schema, "a row")
    with pytest.raises(KeyTypeError, match="'l' is list"):
        FirstLastByKey(("k",), "first", ascending("l")).check(schema, "a row")
