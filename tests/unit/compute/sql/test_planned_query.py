"""A query that is planned once and runs for many groups of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mrflight.compute.sql.engine import EXACT, new_session
from mrflight.compute.sql.planned_query import PlannedQuery, TableSchema, _Table
from tests.support.suite.messages import refused

SCHEMA = pa.schema({"n": pa.int64(), "name": pa.string(), "price": pa.decimal128(9, 2)})


def rows(*numbers: int) -> pa.RecordBatch:
    prices = pa.array([number / 4 for number in numbers]).cast(pa.decimal128(9, 2))
    names = [f"no. {number}" for number in numbers]
    return pa.record_batch([pa.array(numbers, pa.int64()), names, prices], schema=SCHEMA)


def planned(text: str) -> PlannedQuery:
    return PlannedQuery(text, "My rows", TableSchema(SCHEMA, SCHEMA), EXACT)


def passed(plan: PlannedQuery, *batches: pa.RecordBatch) -> list[dict[str, object]]:
    return [row for batch in plan.run(batches) for row in batch.to_pylist()]


def test_each_run_has_its_own_rows() -> None:
    plan = planned("""select name, n * 2 as twice from "My rows" where n > 1 and name <> 'no. 3'""")
    assert passed(plan, rows(1, 2), rows(3, 4)) == [
        {"name": "no. 2", "twice": 4},
        {"name": "no. 4", "twice": 8},
    ]
    assert passed(plan, rows(0, 1)) == []
    assert passed(plan) == []
    assert passed(plan, rows(5)) == [{"name": "no. 5", "twice": 10}]


@pytest.mark.parametrize(
    "text",
    [
        # What Arrow would do otherwise, or not at all, had the dataset to do it.
        'select n from "My rows" where price = 0.5',
        "select n from \"My rows\" where name like '%. 2'",
        'select n from (select n, price + 1 as p from "My rows" where n > 0) where p < 1.75',
        'select n from "My rows" where n in (2, 7) and price is not null',
    ],
)
def test_datafusion_applies_the_filters(text: str) -> None:
    assert passed(planned(text), rows(0, 2, 4)) == [{"n": 2}]


def test_no_rows_are_held_after_a_run() -> None:
    plan = planned('select price from "My rows"')
    memory = pa.proxy_memory_pool(pa.default_memory_pool())
    held = rows(*range(100_000))
    batch = pa.record_batch(
        [pa.concat_arrays([column, column.slice(0, 0)], memory) for column in held],
        schema=held.schema,
    )
    assert memory.bytes_allocated() >= held.nbytes
    passed_rows = sum(found.num_rows for found in plan.run([batch]))
    del batch
    assert passed_rows == 100_000
    assert memory.bytes_allocated() == 0


def test_a_batch_of_another_schema_is_refused() -> None:
    other = pa.record_batch({"n": ["1"], "name": ["a"], "price": ["b"]})
    with refused(Exception):
        passed(planned('select n from "My rows"'), other)


def test_a_filter_pushed_down_to_the_dataset_is_refused() -> None:
    session = new_session({})  # which pushes filters down
    session.register_dataset("visits", _Table(TableSchema(SCHEMA, SCHEMA)))
    with refused(Exception):
        session.sql("select n from visits where n > 1").execution_plan()
