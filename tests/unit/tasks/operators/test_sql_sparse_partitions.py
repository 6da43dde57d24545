"""SQL by partition matches DuckDB if partitions are empty, or have only nulls or one row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mrflight.errors import JobFileError
from mrflight.tasks.operators.sql_reduce import SqlReduce
from tests.support.queries.sql_partitions import by_duckdb, of_partitions
from tests.unit.tasks.operators.test_sql_copartition import ACCEPTED, KEYS, NOT_IN, SCHEMAS

Row = tuple[int | None, str | None, int | None]

NUMBERS = st.one_of(st.none(), st.integers(0, 5))
ROWS = st.lists(st.tuples(NUMBERS, st.sampled_from([None, "s1", "s2"]), NUMBERS), max_size=6)

NULL_IS_IN_ALL: list[list[Row]] = [
    [(1, "s1", 1), (2, "s1", 2), (None, "s2", 3), (3, None, 4)],
    [(1, "s1", 1), (None, "s2", 2)],
    [],
]
"""In table b, one partition has only nulls, one has the value 1, and the others are empty."""

ONE_ROW: list[list[Row]] = [NULL_IS_IN_ALL[0], [(1, "s1", 1)], [(3, "s2", 0)]]


def tables_of(rows: list[list[Row]]) -> dict[str, pa.Table]:
    """Return the tables `a`, `b` and `few`."""
    return {
        name: pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in each], schema
        )
        for (name, schema), each in zip(SCHEMAS.items(), rows, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("text", ACCEPTED)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, min_size=3, max_size=3), partitions=st.integers(1, 8))
@example(rows=NULL_IS_IN_ALL, partitions=4)
@example(rows=ONE_ROW, partitions=8)
@example(rows=[[], [], []], partitions=2)
def test_accepted_queries_match_duckdb(
    text: str, rows: list[list[Row]], partitions: int, tmp_path: Path
) -> None:
    tables = tables_of(rows)
    assert of_partitions(text, tables, KEYS, partitions, tmp_path) == by_duckdb(text, tables)


NOT_IN_ALL = {
    "select id from a where id not in (select id from b)": NULL_IS_IN_ALL,
    "select id from a where id not in (select id from b where id is not null)": ONE_ROW,
    "select id from a where id is not null and id not in (select id from b)": NULL_IS_IN_ALL,
}


@pytest.mark.parametrize("text", NOT_IN_ALL)
def test_not_in_is_refused_unless_nulls_are_excluded(text: str, tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as caught:
        SqlReduce(text, "reduce.sql", keys=KEYS).check_keys(SCHEMAS)
    assert NOT_IN in str(caught.value)
    tables = tables_of(NOT_IN_ALL[text])
    assert of_partitions(text, tables, KEYS, 8, tmp_path) != by_duckdb(text, tables)
    assert of_partitions(text, tables, KEYS, 1, tmp_path) == by_duckdb(text, tables)


@pytest.mark.parametrize("text", NOT_IN_ALL)
@pytest.mark.parametrize("rows", [NULL_IS_IN_ALL, ONE_ROW])
def test_not_in_runs_over_slices_of_its_own_table(
    text: str, rows: list[list[Row]], tmp_path: Path
) -> None:
    tables = tables_of(rows)
    assert SqlReduce(text, "reduce.sql", keys=KEYS).sliceable(SCHEMAS) == ["a"]
    shares = {"a": ["id"]}  # any will do: b is whole in each
    assert of_partitions(text, tables, shares, 8, tmp_path) == by_duckdb(text, tables)
