"""Aggregates without groups result in one row, even without rows, and however maps sent them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrflight.config.aggregates import APPROXIMATIONS, Aggregate
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.queries.column_kinds import KINDS, Kind, admitted, aggregate
from tests.support.queries.reductions import LITTLE, MUCH, every, reduce, table_of
from tests.support.suite.examples import some_of

examples = settings(
    max_examples=some_of(40),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # a folder that is left empty
)

ROWS = Aggregate("rows", "count", None)
EVERY = (*every(), ROWS, *map(aggregate, APPROXIMATIONS))
"""A digest keeps every value of so few rows."""
QUERY = """
select var_samp(v) as var, var_pop(v) as var_pop, stddev_samp(v) as stddev,
       stddev_pop(v) as stddev_pop, median(v) as median, quantile_cont(v, 0.5) as quantile,
       median(v) as approx_median, median(v) as approx_quantile,
       sum(v)::bigint as sum, min(v) as min, max(v) as max, count(v) as count, avg(v) as mean,
       count(distinct v) as count_distinct, first(v order by row) filter (v is not null) as first,
       last(v order by row) filter (v is not null) as last, count(*) as rows
from given
"""

tables = st.lists(st.none() | st.integers(-(2**40), 2**40), max_size=60).map(
    lambda values: pa.table({"v": pa.array(values, pa.int64()), "row": range(len(values))})
)


def sent_by(reduce_spec: ReduceSpec, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that maps send, if each batch is the input of one map."""
    for batch in batches:
        combiner = reduce_spec.combiner(LITTLE)
        assert combiner is not None
        yield from combiner([batch])


def reduce_batches(
    reduce_spec: ReduceSpec, batches: list[pa.RecordBatch], folder: Path
) -> list[dict[str, Any]]:
    """Return the rows of the result."""
    sent = list(sent_by(reduce_spec, batches))
    schema, results = reduce_spec.apply(0, sent[0].schema, iter(sent), TaskMemory(LITTLE, folder))
    assert schema == reduce_spec.applied_schema(sent[0].schema)
    rows: list[dict[str, Any]] = pa.Table.from_batches(results, schema).to_pylist()
    return rows


def spec_of(names: set[str]) -> ReduceSpec:
    return ReduceSpec(aggregates=tuple(each for each in EVERY if each.name in names), combines=True)


@examples
@given(
    given=tables,
    maps=st.integers(1, 5),
    names=st.sets(st.sampled_from([each.name for each in EVERY]), min_size=1),
)
def test_totals_match_sql(given: pa.Table, maps: int, names: set[str], folder: Path) -> None:
    with duckdb.connect() as database:
        database.register("given", given)
        (wanted,) = database.sql(QUERY).to_arrow_table().to_pylist()
    size = -(-len(given) // maps) or 1
    batches = given.to_batches(max_chunksize=size) or [pa.RecordBatch.from_pylist([], given.schema)]
    (row,) = reduce_batches(spec_of(names), batches, folder)
    assert row == pytest.approx({name: wanted[name] for name in names}, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
def test_without_rows_counts_are_0_and_other_aggregates_null(kind: Kind, folder: Path) -> None:
    functions = admitted(kind.type)
    aggregates = (*map(aggregate, functions), ROWS)
    empty = pa.table({"v": kind.array([])})
    of_one = group(pa.table({"v": kind.array([None])}), (), aggregates)
    for combines in (False, True):
        reduce_spec = ReduceSpec(aggregates=aggregates, combines=combines)
        result = reduce(reduce_spec, empty, MUCH, folder)
        assert result.schema == of_one.schema
        counts = {"rows", "count", "count_distinct"}
        assert result.to_pylist() == [
            {each.name: 0 if each.name in counts else None for each in aggregates}
        ]


@pytest.mark.parametrize("rows", [1, 3000])
def test_totals_equal_a_group_by_a_constant(rows: int, folder: Path) -> None:
    """Distinct values are spilled to local files if there is little memory."""
    table = table_of(20, rows)
    aggregates = (*every(), ROWS, Aggregate("texts", "count_distinct", "text"))
    constant = table.append_column("one", pa.repeat(1, rows))
    wanted = group(constant, ["one"], aggregates).drop_columns("one")
    for memory_bytes in (LITTLE, MUCH):
        result = reduce(ReduceSpec(aggregates=aggregates), table, memory_bytes, folder)
        assert result.schema == wanted.schema
        assert result.to_pylist()[0] == pytest.approx(wanted.to_pylist()[0], rel=1e-12)
    assert not list(folder.iterdir())
