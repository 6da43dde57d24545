"""Reduces by SQL match DuckDB, in memory and through files, and invalid queries are refused."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from mrflight.config.memory import Processes, divide_memory, min_memory
from mrflight.errors import ColumnNotFoundError, JobError, JobFailedError, JobFileError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators import sql_reduce
from mrflight.tasks.operators.sql_reduce import SqlReduce
from tests.support.queries.duckdb_joins import comparable_rows, rows_of
from tests.support.suite.messages import refused

MUCH = 2**30
RANDOM = np.random.default_rng(5)
ROWS = 5000
DAYS = pa.array(RANDOM.integers(9000, 9400, ROWS).astype(np.int32), pa.date32())
VISITS = pa.table(
    {
        "Url": pa.array([f"site {n}" for n in RANDOM.integers(0, 300, ROWS)]),
        "day": DAYS,
        "price": pa.array(RANDOM.integers(0, 10_000, ROWS)).cast(pa.decimal128(19, 0)),
        "n": pa.array(RANDOM.integers(0, 100, ROWS), mask=RANDOM.random(ROWS) < 0.1),
        "place": pa.array([None if n % 3 else {"zip": n % 2} for n in range(ROWS)]),
        "unused": pa.array(["x" * 50] * ROWS),
    }
)
SITES = pa.table(
    {
        "Url": pa.array([f"site {n}" for n in range(250)]).dictionary_encode(),
        "owner": pa.array([f"owner {n % 7}" for n in range(250)], pa.string_view()),
    }
)
TABLES = {"visits": VISITS, "Sites-1": SITES}

QUERIES = [
    'select v."Url", owner, sum(price * (1 - 0.05)) as paid, count(*) as c from visits v '
    'join "Sites-1" s on v."Url" = s."Url" where n is not null group by 1, 2',
    "select a.n, count(*) as c from visits a, visits b where a.n = b.n + 90 and a.price < b.price "
    "group by a.n",
    'select "Url" from "Sites-1" s where not exists (select 1 from visits v where '
    'v."Url" = s."Url" and v.n > 95)',
    'select "Url", max(day) as d, sum(case when "Url" like \'%7\' then n else 0 end) as s from '
    "visits where day >= date '1994-09-01' and day < date '1994-09-01' + interval '3' month "
    'group by "Url"',
    'select * from (select "Url", n, day, price, row_number() over (partition by "Url" order by '
    "price desc, day desc, n) as place from visits) where place <= 2",
    "select distinct extract(year from day) as y, n from visits",
    'select "Url", n from visits where price > (select avg(price) from visits) order by price, n',
    "select count(*) as c from visits where n between 10 + 5 and 20",
    "select n from visits where n > 1000",
    "select place['zip'] as zip, count(*) as c from visits group by 1",
]

SQL = Processes(workers=2, data_servers=1, with_sql=True)


def applied(
    text: str, tables: Mapping[str, pa.Table], memory_bytes: int, folder: Path
) -> tuple[list[pa.RecordBatch], list[str]]:
    """Return the batches of the result, and the local files that held inputs."""
    query = pickle.loads(pickle.dumps(SqlReduce(text, "reduce.sql")))
    inputs = {
        name: (table.schema, iter(table.to_batches(max_chunksize=500)))
        for name, table in tables.items()
    }
    with ScratchFolder("sql", folder) as scratch:
        batches = list(query.apply(inputs, memory_bytes, scratch))
        files = sorted(path.name for path in scratch.path.glob("sql-*"))
    assert list(folder.iterdir()) == []
    wanted = query.check({name: table.schema for name, table in tables.items()})
    assert all(batch.schema.equals(wanted) for batch in batches)
    return batches, files


def by_duckdb(text: str) -> list[tuple[object, ...]]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in TABLES.items():
            connection.register(name, table)
        return connection.execute(text).fetchall()


def numbers(rows: list[tuple[object, ...]]) -> list[str]:
    """Return the rows as sorted texts, in which equal numbers of different types are equal."""
    return comparable_rows(
        [[v if isinstance(v, str | None) else str(v).removesuffix(".00") for v in r] for r in rows]
    )


@pytest.mark.parametrize("text", QUERIES)
def test_results_match_duckdb(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = numbers(by_duckdb(text))
    batches, files = applied(text, TABLES, MUCH, tmp_path)
    assert numbers(rows_of([pa.Table.from_batches(batches)])) == wanted
    assert files == []
    monkeypatch.setattr(sql_reduce, "HELD_FRACTION", 2**20)  # so that no input is held
    batches, files = applied(text, TABLES, 2**24, tmp_path)
    assert numbers(rows_of([pa.Table.from_batches(batches)])) == wanted
    assert files == ["sql-0-0.0.arrows", "sql-1-0.0.arrows"]


def test_only_needed_columns_are_held() -> None:
    schemas = {name: table.schema for name, table in TABLES.items()}
    used = [SqlReduce(text, "reduce.sql").columns(schemas) for text in QUERIES]
    assert used[0] == {"visits": ["Url", "price", "n"], "Sites-1": ["Url", "owner"]}
    assert used[1] == {"visits": ["price", "n"], "Sites-1": ["Url"]}
    assert used[5] == {"visits": ["day", "n"], "Sites-1": ["Url"]}


def test_the_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "it's [a] 100% *? ä"
    folder.mkdir()
    batches, files = applied("select count(*) as c from visits", {"visits": VISITS}, 2**16, folder)
    assert [batch.to_pydict() for batch in batches] == [{"c": [ROWS]}]
    assert files == ["sql-0-0.0.arrows"]


KEYS = pa.table({"k": np.arange(200_000), "v": np.arange(200_000) * 2})
MANY = {"a": KEYS, "b": KEYS.rename_columns(["k", "w"])}


def test_a_join_whose_hash_table_does_not_fit_goes_through_files(tmp_path: Path) -> None:
    text = "select a.k, v, w from a join b on a.k = b.k where v % 3 = 0"
    batches, files = applied(text, MANY, 9 * 2**20, tmp_path)
    assert len(files) == 2
    found = pa.Table.from_batches(batches).sort_by("k")
    assert found["k"].to_pylist() == list(range(0, 200_000, 3))
    assert found["v"] == found["w"]


def test_sorts_and_groups_go_through_files(tmp_path: Path) -> None:
    text = "select k, sum(v) as v from a group by k order by v desc"
    batches, files = applied(text, {"a": KEYS}, 6 * 2**20, tmp_path)
    assert len(files) == 1
    found = pa.Table.from_batches(batches)
    assert found["k"].to_pylist() == list(range(199_999, -1, -1))


def wide_rows(rows: int, width: int) -> pa.Table:
    numbers = np.random.default_rng(7).permutation(rows)
    texts = [f"{number:09d}" * (width // 9) for number in numbers]
    return pa.table({"k": numbers % 100, "v": numbers, "f": numbers / 3, "t": texts})


@pytest.mark.parametrize(
    ("rows", "width"),
    [
        pytest.param(1_000_000, 9, marks=pytest.mark.slow),
        (100_000, 200),
        (10_000, 3000),
        (1000, 30_000),
    ],
)
@pytest.mark.parametrize(
    "columns",
    [
        "k, v, row_number() over (partition by k order by v)",
        "*, row_number() over (partition by k order by v)",
        "*, row_number() over (partition by k order by v), lag(v) over (partition by k order by f),"
        " rank() over (partition by k order by f desc)",
    ],
)
def test_windows_run_in_the_minimum_memory_of_a_job(
    rows: int, width: int, columns: str, tmp_path: Path
) -> None:
    plan = divide_memory(min_memory(SQL), SQL).halved()
    text = f"select {columns} as n from a"
    batches, _ = applied(text, {"a": wide_rows(rows, width)}, plan.reducer, tmp_path)
    found = pa.Table.from_batches(batches)
    assert sorted(found["v"].to_pylist()) == list(range(rows))
    if "rank" not in columns:
        assert found["n"].to_pylist() == [v // 100 + 1 for v in found["v"].to_pylist()]


def test_too_little_memory_is_an_error_with_advice(tmp_path: Path) -> None:
    text = "select count(*) as c from a, b where a.v < b.w or a.k = b.k"
    with refused(JobFailedError, "reduce.sql"):
        applied(text, MANY, 2**20, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_is_closed_early_leaves_no_files(tmp_path: Path) -> None:
    """DataFusion's threads remove their files while the result is closed."""
    inputs = {"a": (KEYS.schema, iter(KEYS.to_batches(max_chunksize=5000)))}
    query = SqlReduce("select * from a order by v desc", "reduce.sql")
    with ScratchFolder("sql", tmp_path) as scratch:
        results = query.apply(inputs, 4 * 2**20, scratch)
        assert next(results)["k"][0].as_py() == 199_999
        results.close()
    assert list(tmp_path.iterdir()) == []


def test_no_rows_result_in_an_empty_batch(tmp_path: Path) -> None:
    empty = {name: table.slice(0, 0) for name, table in TABLES.items()}
    ((found,), _) = applied(QUERIES[0], empty, MUCH, tmp_path)
    assert found.num_rows == 0
    ((found,), _) = applied("select count(*) as c from visits", empty, MUCH, tmp_path)
    assert found.to_pydict() == {"c": [0]}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "select nope from visits",
            ColumnNotFoundError,
        ),
        (
            "select url from nothing",
            JobFileError,
        ),
        (
            'select * from visits, "Sites-1"',
            JobFileError,
        ),
        ("explain select n from visits", JobFileError),
        ("insert into visits select * from visits", JobFileError),
        ("create table x as select 1", JobFileError),
        ("select n + day from visits where", JobFileError),
        ('select price + owner from visits, "Sites-1"', JobFileError),
    ],
)
def test_invalid_queries_are_refused(text: str, kind: type[JobError]) -> None:
    with refused(kind, "stages.a.reduce.sql"):
        SqlReduce(text, "stages.a.reduce.sql").check({n: t.schema for n, t in TABLES.items()})


def test_an_error_in_the_values_is_a_job_file_error(tmp_path: Path) -> None:
    with refused(JobFileError, "reduce.sql"):
        applied('select cast("Url" as int) as number from visits', TABLES, MUCH, tmp_path)
