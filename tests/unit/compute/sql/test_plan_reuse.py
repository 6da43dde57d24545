"""The plans of queries are cached for later tasks of a worker."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from mrflight.compute.sql.map import SqlMap
from mrflight.compute.sql.plan_cache import TableSchemas
from mrflight.errors import JobFileError
from mrflight.tasks.operators.sql_reduce import SqlReduce

ROWS = pa.schema([("n", pa.int64()), ("url", pa.string())])
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
