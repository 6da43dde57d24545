"""The plans of queries are cached for later tasks of a worker."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from datafusion import DataFrame, SessionContext

from mrflight.compute.sql import plan_cache
from mrflight.compute.sql.engine import EXACT
from mrflight.compute.sql.map import SqlMap
from mrflight.compute.sql.plan_cache import TableSchemas, plan_query
from mrflight.compute.sql.plans import optimized_plan
from mrflight.errors import JobFileError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.sql_reduce import SqlReduce

ROWS = pa.schema([("n", pa.int64()), ("url", pa.string())])
WEIGHT = pa.field("weight", pa.float64())
TOLD = ROWS.with_metadata({"of": "another file"})


def test_the_next_task_reuses_the_plan_of_a_map() -> None:
    query = SqlMap("select n + 40 as m from visits", "visits", "inputs.visits.sql")
    plan = query._plan(ROWS)[0]
    assert pickle.loads(pickle.dumps(query))._plan(pa.schema(list(ROWS)))[0] is plan
    assert query._plan(pa.schema(list(ROWS)[:1]))[0] is not plan


def test_the_next_task_reuses_the_plan_of_a_reduce() -> None:
    query = SqlReduce("select n + 41 as m from visits", "reduce.sql", keys={"visits": ("n",)})
    plan = query._plan({"visits": ROWS})[0]
    assert pickle.loads(pickle.dumps(query))._plan({"visits": pa.schema(list(ROWS))})[0] is plan
    assert query._plan({"visits": pa.schema(list(ROWS)[:1])})[0] is not plan


def test_plans_are_cached_by_schema_and_metadata() -> None:
    same = TableSchemas.of({"visits": pa.schema(list(ROWS))})
    assert {TableSchemas.of({"visits": ROWS})} == {same}
    one, two = TableSchemas.of({"visits": ROWS}), TableSchemas.of({"visits": ROWS, "pages": ROWS})
    others = [{"pages": ROWS}, {"visits": TOLD}, {"pages": ROWS, "visits": ROWS}]
    assert len({one, two, *map(TableSchemas.of, others)}) == 5
    assert one != ROWS


def test_an_error_names_the_key_path_of_each_query() -> None:
    for number in (1, 1, 2):
        with pytest.raises(JobFileError, match=rf"^inputs\.v{number}\.sql: "):
            SqlMap("select max(n) from v", "v", f"inputs.v{number}.sql").check(ROWS)


@pytest.mark.parametrize(
    ("read", "options"),
    [("url", [{}, EXACT]), ("weight", [{}])],
)
def test_only_tables_with_floats_are_planned_twice(
    read: str, options: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a plan tells whether the query reads them."""
    planned: list[Mapping[str, str]] = []
    new_session = plan_cache.new_session

    def session(options: Mapping[str, str]) -> SessionContext:
        planned.append(options)
        return new_session(options)

    monkeypatch.setattr(plan_cache, "new_session", session)
    path = f"reduce.sql of {read}"  # which no other test has planned
    plan_query(f"select {read} from visits", path, {"visits": ROWS.append(WEIGHT)})
    assert planned == options
    planned.clear()
    plan_query("select url from visits", path, {"visits": ROWS})
    assert planned == [EXACT]


def test_a_plan_is_optimized_once() -> None:
    plan, _ = plan_query("select n + 42 as m from visits", "reduce.sql", {"visits": ROWS})
    assert optimized_plan(plan) is optimized_plan(plan)


def test_a_reduce_runs_the_plan_that_it_has_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def plans_again(rows: DataFrame) -> None:
        raise AssertionError("the query is planned again")

    monkeypatch.setattr(DataFrame, "execute_stream", plans_again)
    visits = pa.RecordBatch.from_pydict({"n": [1, 2], "url": ["a", "b"]}, ROWS)
    query = SqlReduce("select a.n from visits a join visits b on a.n = b.n", "reduce.sql")
    with ScratchFolder("sql", tmp_path) as scratch:
        (result,) = query.apply({"visits": (ROWS, iter([visits]))}, 2**26, scratch)
    assert sorted(result["n"].to_pylist()) == [1, 2]
