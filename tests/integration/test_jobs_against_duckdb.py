"""Joins, orders, limits, distinct and kept rows: jobs whose results are those of DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from tests.support.commands.driver import write_job
from tests.support.jobs.visit_jobs import (
    BROADCAST,
    HEAD,
    JOIN,
    USERS_BY_ID,
    VISITS,
    VISITS_BY_USER,
    write_visits,
)
from tests.support.queries.oracle import rows

pytestmark = pytest.mark.runs_on_ray

EVERYONE = "[inputs.everyone]\npath = 'users.parquet'\nbroadcast = true\n"
SQL_OF_MAP = """sql = 'select "user", weight * 2 as twice from visits where weight > 10'\n"""
SQL_OF_KEYS = """[reduce]
sql = '''select country, sum(twice) as total, (select count(*) from everyone) as n
from visits join users on id = "user" group by country, id'''
"""
TOTALS = """
[reduce.aggregate]
n = "count(*)"
weights = "count(weight)"
total = "sum(weight)"
mean = "mean(weight)"
most = "max(row)"
"""
TOTALS_SQL = "count(*) n, count(weight) weights, sum(weight) total, avg(weight) mean, max(row) most"


@dataclass(frozen=True)
class Case:
    """Sections of a job, and the query that says what they mean."""

    name: str
    sections: str
    query: str
    is_ordered: bool = False
    partitions: int = 3

    def __str__(self) -> str:
        return self.name


def join(how: str, on: str = "u.id = v.user") -> Case:
    columns = "v.*" if how in ("semi", "anti") else "v.*, u.*"
    query = f"select {columns} from visits v {how} join users u on {on}"
    return Case(how, JOIN.format(how), query)


ORDER = 'weight desc nulls first, "user", row'
CASES = [
    *(join(how) for how in ("inner", "left", "right", "full", "semi", "anti")),
    *(
        Case(
            f"{how} of a broadcast input", each.sections.replace(USERS_BY_ID, BROADCAST), each.query
        )
        for how in ("inner", "left", "semi", "anti")
        for each in [join(how)]
    ),
    Case(
        "groups of a broadcast input's rows",
        f"{VISITS_BY_USER}{BROADCAST}[reduce]\njoin = 'inner'\n".replace(
            "[inputs", "[stages.s.inputs"
        ).replace("[reduce", "[stages.s.reduce")
        + "[inputs.s]\nstage = 's'\n[reduce]\ngroup_by = ['country']\n"
        "aggregate = { n = 'count(*)' }\nsort_by = ['country']",
        "select country, count(*) n from visits v join users u on u.id = v.user "
        "group by 1 order by 1",
        is_ordered=True,
    ),
    Case(
        "swapped",
        JOIN.format("left") + "left = 'users'\n",
        "select u.*, v.* from users u left join visits v on u.id = v.user",
    ),
    Case(
        "sort",
        VISITS_BY_USER + "[reduce]\nsort_by = ['weight desc nulls first', 'user', 'row']\n",
        f"select * from visits order by {ORDER}",
        is_ordered=True,
    ),
    Case(
        "limit",
        VISITS_BY_USER
        + "[reduce]\nsort_by = ['weight desc nulls first', 'user', 'row']\nlimit = 17\n",
        f"select * from visits order by {ORDER} limit 17",
        is_ordered=True,
    ),
    Case(
        "groups in order",
        VISITS_BY_USER
        + "[reduce]\ngroup_by = ['user']\naggregate = { n = 'count(*)' }\n"
        + "sort_by = ['n desc', 'user nulls first']\n",
        'select "user", count(*) n from visits group by 1 order by n desc, "user" nulls first',
        is_ordered=True,
    ),
    Case(
        "sql of a map and of whole keys, and of an input that everyone has",
        VISITS_BY_USER + SQL_OF_MAP + USERS_BY_ID + EVERYONE + SQL_OF_KEYS,
        "select country, sum(weight * 2) total, (select count(*) from users) n "
        'from visits join users on id = "user" where weight > 10 group by country, id',
    ),
    Case(
        "sql of a stream and a broadcast input",
        VISITS
        + BROADCAST
        + "[reduce]\nsql = 'select row, country from visits left join users on id = \"user\"'\n",
        'select row, country from visits left join users on id = "user"',
    ),
    Case(
        "sql without a key",
        VISITS + "[reduce]\nsql = 'select avg(weight) as mean, count(*) as n from visits'\n",
        "select avg(weight) mean, count(*) n from visits",
    ),
    Case(
        "sql of a key, and of all rows in one partition after it",
        VISITS_BY_USER.replace("[inputs", "[stages.s.inputs")
        + '[stages.s.reduce]\nsql = \'select "user", count(*) c from visits group by "user"\'\n'
        "[inputs.s]\nstage = 's'\nkey = ['user']\n"
        "[reduce]\nsql = 'select c, count(*) as n from s group by c'\n",
        'select c, count(*) n from (select count(*) c from visits group by "user") group by c',
        partitions=1,
    ),
    Case("one row of all rows", VISITS + TOTALS, f"select {TOTALS_SQL} from visits"),
    Case(
        "one row of no rows",
        VISITS + "sql = 'select * from visits where weight > 1000'\n" + TOTALS,
        f"select {TOTALS_SQL} from visits where weight > 1000",
    ),
    Case(
        "one row of all rows, of which values are counted once",
        VISITS + "[reduce]\naggregate = { users = 'count_distinct(user)', n = 'count(*)' }\n",
        'select count(distinct "user") users, count(*) n from visits',
    ),
    Case(
        "how many rows there are",
        VISITS + "[reduce]\naggregate = { n = 'count(*)' }\n",
        "select count(*) n from visits",
    ),
    Case(
        "one row of a stage's rows, in order",
        VISITS_BY_USER.replace("[inputs", "[stages.s.inputs")
        + "[stages.s.reduce]\ngroup_by = ['user']\naggregate = { most = 'max(weight)' }\n"
        "[inputs.s]\nstage = 's'\n[reduce]\n"
        "aggregate = { users = 'count(*)', most = 'sum(most)' }\nsort_by = ['users']\nlimit = 3\n",
        "select count(*) users, sum(most) most "
        'from (select max(weight) most from visits group by "user")',
    ),
    *(
        Case(
            f"one row of {which} in a stage",
            VISITS.replace("[inputs", "[stages.s.inputs")
            + f"sql = 'select * from visits where weight > {least}'\n"
            + TOTALS.replace("[reduce", "[stages.s.reduce")
            + "[inputs.s]\nstage = 's'\nkey = ['n']\n"
            "sql = 'select n + 1 as n, total from s'\n",
            f"select count(*) + 1 n, sum(weight) total from visits where weight > {least}",
        )
        for which, least in (("some rows", 20), ("no rows", 1000))
    ),
    Case(
        "distinct",
        "[inputs.visits]\npath = 'visits.parquet'\ncolumns = ['user', 'weight']\n"
        "[reduce]\ndistinct = true\n",
        'select distinct "user", weight from visits',
    ),
    Case(
        "keep the last",
        VISITS_BY_USER + "[reduce]\nkeep = 'last'\norder_by = ['row']\n",
        "select * from visits "
        'qualify row_number() over (partition by "user" order by row desc) = 1',
    ),
    Case(
        "keep the first of a join, in order",
        "[stages.all.inputs.visits]\npath = 'visits.parquet'\nkey = ['user']\n"
        "[stages.all.inputs.users]\npath = 'users.parquet'\nkey = ['id']\n"
        "[stages.all.reduce]\njoin = 'inner'\n"
        "[inputs.all]\nstage = 'all'\nkey = ['country']\n"
        "[reduce]\nkeep = 'first'\norder_by = ['row']\nsort_by = ['row']\n",
        "select v.*, u.* from visits v join users u on u.id = v.user "
        "qualify row_number() over (partition by country order by row) = 1 order by row",
        is_ordered=True,
    ),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_visits(tmp_path_factory.mktemp("inputs"))


def run(folder: Path, inputs: Path, sections: str, partitions: int = 3) -> pa.Table:
    head = HEAD.replace("partitions = 3", f"partitions = {partitions}")
    job = write_job(folder, head + sections.replace("path = '", f"path = '{inputs}/"))
    result = mrflight.run(job)
    paths = sorted((folder / "out").glob("part-*.parquet"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    assert result.rows_out == len(table)
    assert result.attempts.failed == 0
    return table


# What others of them show as well, or a test of the operator or of the plan.
SLOW = {
    *("left", "right", "anti", "swapped", "sort", "distinct", "sql without a key"),
    *(f"{how} of a broadcast input" for how in ("inner", "semi", "anti")),
    *("sql of a stream and a broadcast input", "how many rows there are"),
    *("one row of all rows, of which values are counted once", "keep the last"),
    *("one row of a stage's rows, in order", "one row of some rows in a stage"),
}
assert {case.name for case in CASES} > SLOW


@pytest.mark.slow_but("limit", "one row of no rows")
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case.name in SLOW else ()) for case in CASES],
    ids=str,
)
def test_a_job_gives_what_duckdb_gives(case: Case, inputs: Path, tmp_path: Path) -> None:
    table = run(tmp_path, inputs, case.sections, case.partitions)
    database: Any = duckdb.connect()
    for name in ("visits", "users"):
        database.execute(f"create view {name} as from '{inputs}/{name}.parquet'")
    expected = database.sql(case.query).to_arrow_table()
    assert table.column_names == expected.column_names
    if case.is_ordered:
        assert table.to_pylist() == expected.to_pylist()
    else:
        assert rows(table) == rows(expected)


def test_a_limit_without_an_order_has_any_rows(inputs: Path, tmp_path: Path) -> None:
    table = run(tmp_path, inputs, VISITS_BY_USER + "[reduce]\nlimit = 1234\n")
    visits = set(rows(pq.read_table(inputs / "visits.parquet")))
    assert len(table) == 1234
    assert set(rows(table)) <= visits
    assert len(set(rows(table))) == 1234
