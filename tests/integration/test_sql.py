"""``mrflight sql``: queries over files through real shuffles give what DuckDB gives."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import mrflight
from mrflight.planner import sql_plan
from tests.support.commands.sql_command import answer, command
from tests.support.suite.messages import said

ROWS = 40_000
"""A file of them is large enough for several tasks."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits as Parquet, as a folder of it, as a Delta table and as CSV, and pages as CSV."""
    folder = tmp_path_factory.mktemp("sql")
    rng = random.Random(7)
    visits = pa.table(
        {
            "page": [rng.choice([*range(500), None]) for _ in range(ROWS)],
            "seconds": [rng.random() for _ in range(ROWS)],
            "country": [rng.choice(["at", "de", "fi", "se"]) for _ in range(ROWS)],
        }
    )
    pq.write_table(visits, folder / "visits.parquet", row_group_size=2_000)
    (folder / "visits").mkdir()
    for number in range(4):
        part = visits.slice(number * ROWS // 4, ROWS // 4)
        pq.write_table(part, folder / "visits" / f"{number}.parquet")
        write_deltalake(folder / "table", part, mode="append")
    pyarrow.csv.write_csv(visits, folder / "visits.csv")
    pages = pa.table({"page": range(0, 500, 2), "topic": [f"t{n % 7}" for n in range(250)]})
    pyarrow.csv.write_csv(pages, folder / "pages.csv")
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def database(folder: Path) -> Iterator[Any]:
    with duckdb.connect() as connection:
        for name, path in (("visits", "visits.parquet"), ("pages", "pages.csv")):
            connection.execute(f"create view {name} as select * from '{folder / path}'")
        yield connection


def rows_of(text: str) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(line).values()) for line in text.splitlines()]


def same(found: Sequence[tuple[Any, ...]], wanted: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether rows are equal, but for the last digits of sums of floats."""
    return [[*map(rounded, row)] for row in found] == [[*map(rounded, row)] for row in wanted]


def rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


QUERIES = {
    "join": "select topic, count(*) as n, sum(seconds) as s from visits join pages using (page) "
    "group by topic order by topic",
    "outer": "select v.country, count(*) as n, count(p.page) as known from visits v "
    "left join pages p on v.page = p.page group by v.country order by 1",
    "window": "select * from (select page, country, row_number() over "
    "(partition by page order by seconds) as place from visits) where place = 1 order by page",
    "distinct": "select country, count(distinct page) as n from visits group by country "
    "union all select topic, count(*) from pages group by topic order by 1",
    "rollup": "select country, topic, count(*) as n from visits v full join pages p "
    "on v.page = p.page + 400 group by rollup (country, topic) order by 1, 2, 3",
    "anti": "select count(*) as n from visits v where not exists "
    "(select * from pages p where p.page = v.page)",
    "in": "select page from visits where page not in (select page from pages) order by 1, seconds "
    "limit 5",
    "scalar": "select country, count(*) as n from visits where seconds > "
    "(select avg(seconds) from visits) group by country order by country",
    "cross": "select count(*) as n from visits v, pages p where v.page < p.page and p.page < 20",
    "none": "select country, page from visits where seconds > 2",
    "whole window": "select page, place from (select page, row_number() over "
    "(order by seconds desc) as place from visits) where place < 4 order by place",
    "inner limit": "select count(*) as n from (select page from visits limit 3) v, pages p",
    "limit of the other": "select count(v.seconds) as v, count(p.topic) as p from "
    "(select seconds from visits limit 3) v cross join pages p",
    "itself": "select count(a.page) as a, count(b.page) as b from pages a, pages b",
    "views": "create view late as select country, max(seconds) as m from visits group by country;"
    "select v.country, count(*) as n from visits v join late l on v.country = l.country "
    "and v.seconds > l.m * 0.9 group by v.country order by 1",
}


VISITS = ("visits.parquet", "visits", "table", "visits.csv")
CASES = list(itertools.product(QUERIES, (1, 3), VISITS))
QUICK = [
    ("join", 3, "visits.parquet"),
    ("join", 1, "visits.csv"),
    ("outer", 3, "visits"),
    ("scalar", 3, "table"),
    ("distinct", 3, "visits.csv"),
    ("views", 3, "visits.parquet"),
]
SLOW = [
    (name, partitions, VISITS[(number + partitions) % len(VISITS)])
    for number, name in enumerate(QUERIES)
    for partitions in (1, 3)
]
"""Each query over one kind of files in one task, and over another in several."""


def mark_of(case: tuple[str, int, str]) -> Any:
    if case in QUICK:
        return ()
    return pytest.mark.slow if case in SLOW else pytest.mark.soak


@pytest.mark.slow_but("scalar-3-table", "distinct-3-visits.csv")
@pytest.mark.parametrize(
    ("name", "partitions", "visits"),
    [pytest.param(*case, marks=mark_of(case)) for case in CASES],
)
def test_a_query_gives_what_duckdb_gives(
    name: str, partitions: int, visits: str, folder: Path, database: Any
) -> None:
    *before, query = QUERIES[name].split(";")
    for each in before:
        database.execute(each.replace("create view", "create or replace view"))
    done = answer(
        folder,
        *("--format", "json", QUERIES[name], "--set", f"shuffle.partitions={partitions}"),
        *("--table", f"visits={visits}", "--table", "pages=pages.csv"),
    )
    assert done.returncode == 0, done.stderr
    assert same(rows_of(done.stdout), database.execute(query).fetchall())


@pytest.mark.slow
def test_rows_are_printed_in_every_format(folder: Path) -> None:
    query = "select country, page from 'visits.csv' order by seconds limit 45"
    of_json = rows_of(answer(folder, query, "--format", "json").stdout)
    assert len(of_json) == 45
    first, *of_csv = csv.reader(io.StringIO(answer(folder, query, "--format", "csv").stdout))
    assert first == ["country", "page"]
    assert [(country, int(page) if page else None) for country, page in of_csv] == of_json
    printed = answer(folder, query).stdout.splitlines()
    assert printed[-1] == "first 40 of 45 rows"
    arrow = subprocess.run(
        command(query, "--format", "arrow"),
        cwd=folder,
        capture_output=True,
        check=True,
    )
    table = pa.ipc.open_stream(arrow.stdout).read_all()
    assert [tuple(row.values()) for row in table.to_pylist()] == of_json


@pytest.mark.slow
def test_a_result_is_written_to_a_table_and_read_again(folder: Path, tmp_path: Path) -> None:
    table = str(tmp_path / "out")
    query = "select country, count(*) as n from 'visits.parquet' group by country"
    done = answer(folder, query, "--out", table, "--set", "shuffle.partitions=3")
    assert done.returncode == 0, done.stderr
    again = answer(folder, query, "--out", table)
    assert again.returncode == 2
    assert "output.mode" in again.stderr
    assert answer(folder, query, "--out", table, "--mode", "append").returncode == 0
    assert DeltaTable(table).version() == 1
    found = answer(
        folder,
        f"select country, sum(n) as n from delta.'{table}' group by country order by 1",
        "--format",
        "json",
    )
    counted = (
        pq.read_table(folder / "visits.parquet").group_by("country").aggregate([([], "count_all")])
    )
    assert rows_of(found.stdout) == sorted(
        (row["country"], 2 * row["count_all"]) for row in counted.to_pylist()
    )


@pytest.mark.slow
def test_a_sorted_result_is_written_in_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_plan, "_FEW_SORTED_ROWS", 20_000)
    small_files = {sql_plan._MIN_DIVIDED_BYTES: "3000"}
    monkeypatch.setattr(sql_plan, "_PLANNING", {**sql_plan._PLANNING, **small_files})
    rng = random.Random(3)
    rows = [(n, rng.choice(["a", "b", None]), rng.choice([1.5, -2.0, None])) for n in range(25_000)]
    table = pa.table(dict(zip(("id", "s", "f"), map(list, zip(*rows, strict=True)), strict=True)))
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2_000)
    query = (
        f"select id, s from '{tmp_path}/rows.parquet' "
        "order by f desc nulls last, s nulls first, id % 100, id"
    )
    result = mrflight.sql(query).with_shuffle(partitions=4)
    result.write_parquet(tmp_path / "out", progress=False)
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(parts) > 2
    found = [row["id"] for part in parts for row in pq.read_table(part).to_pylist()]
    with duckdb.connect() as connection:
        assert found == [row[0] for row in connection.execute(query).fetchall()]


RECURSIVE = (
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r"
)


@pytest.mark.parametrize(
    "words",
    [
        ["select pgae from 'visits.csv'"],
        ["selec 1"],
        ["select * from nowhere"],
        ["delete from 'visits.csv'"],
        ["--table", "visits", "select 1"],
        ["select 1; select 2"],
        [],
        ["select * from 'no.csv'"],
        [RECURSIVE, "--set", "shuffle.partitions=2"],
        [RECURSIVE],
        ["select count(*) from 'visits.csv' group by grouping sets (())"],
    ],
    ids=" ".join,
)
def test_what_a_user_gets_wrong(words: list[str], folder: Path) -> None:
    done = answer(folder, *words)
    assert done.returncode == 2, done.stderr
    said(done.stderr)


@pytest.mark.parametrize(
    ("query", "partitions", "why"),
    [
        ("select count(*) from visits", '"auto"', "its tables are small"),
        ("select count(*) from visits", "1", "shuffle.partitions is 1"),
        (
            "select a.page from visits a left join visits b on a.page = b.page and "
            "a.seconds < (select min(seconds) from visits)",
            "3",
            "a subquery of one value is in the condition of an outer join",
        ),
        (
            "select count(*) from (select array_agg(page) s from visits group by page) group by s",
            "3",
            "a key has no hash",
        ),
    ],
)
def test_an_explanation_says_why_one_task_runs_all(
    query: str, partitions: str, why: str, folder: Path
) -> None:
    words = ["--table", "visits=visits.parquet", "--set", f"shuffle.partitions={partitions}"]
    done = answer(folder, query, *words, "--explain", "--set", "cluster.workers=2")
    assert f"one with 2 threads for the whole query: {why}" in done.stdout, done.stderr


def test_an_explanation_names_what_moves(folder: Path) -> None:
    tables = ["--table", "visits=visits.parquet", "--table", "pages=pages.csv"]
    done = answer(folder, QUERIES["join"], *tables, "--explain", "--set", "shuffle.partitions=3")
    assert done.returncode == 0, done.stderr
    assert "tasks:          one for each group of files, 3" in done.stdout
    assert "by the hash of" in done.stdout
    assert "AggregateExec: mode=Partial" in done.stdout


@pytest.mark.slow
def test_an_analysis_says_what_stages_did(folder: Path, tmp_path: Path) -> None:
    tables = ["--table", "visits=visits.parquet", "--table", "pages=pages.csv"]
    wanted = ["--set", "shuffle.partitions=3", "--explain-analyze"]
    done = answer(folder, QUERIES["join"], *tables, *wanted)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[2].strip() for line in lines if line.startswith("stage:")] == [
        "map sql 1 pages",
        "sql 1 (map sql 2 rows)",
        "sql 2 (map sql 3 rows)",
        "sql 3 (map result)",
    ]
    assert "rows:           250 out" in lines
    assert "rows:           40,750 in, 21 out" in lines  # each of three tasks gets all pages
    assert "rows:           40,250 read, 7 in the result" in lines
    assert any(re.match(r"  over: +750 rows, \d+\.\d+ s: Table: pages$", line) for line in lines)
    assert re.search(r"^tasks: +3 in \d.*, median .*, longest", done.stdout, re.MULTILINE)
    assert re.search(r"^memory: +at most \d+\.\d MiB in a worker", done.stdout, re.MULTILINE)
    assert "t0" not in done.stdout

    out = str(tmp_path / "out")
    done = answer(folder, QUERIES["join"], *tables, *wanted, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "stage:          sql 3 (reduce)\n" in done.stdout
    assert len(DeltaTable(out).to_pyarrow_table()) == 7
    done = answer(folder, "select nothing from visits", *tables, "--explain-analyze", "--out", out)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_of_files_that_datafusion_reads_are_counted_once(
    partitions: int, folder: Path, tmp_path: Path
) -> None:
    """A small file is read by every task, and counts once as well."""
    pq.write_table(pyarrow.csv.read_csv(folder / "pages.csv"), tmp_path / "pages.parquet")
    rows = mrflight.sql(
        "select a.country, count(*) as n from visits a join pages using (page) group by a.country",
        visits=mrflight.read(folder / "visits.parquet"),
        pages=mrflight.read(tmp_path / "pages.parquet"),
    ).with_shuffle(partitions=partitions)
    result = rows.write_parquet(tmp_path / "out", progress=False)
    assert (result.rows_in, result.rows_out) == (ROWS + 250, 4)
    first = result.profile.stages[0]
    assert first.tasks == partitions
    scans = [each.rows for each in first.operators if each.text.startswith("DataSourceExec")]
    assert sorted(scans) == [250 * partitions, ROWS]


def test_queries_in_python_take_tables_in_memory_and_datasets(folder: Path) -> None:
    topics = pa.table({"page": [1, 2, 3], "topic": ["a", "b", "c"]})
    visits = mrflight.read(folder / "visits.csv").filter(mrflight.col("seconds") < 0.5)
    query = "select topic, count(*) as n from v join topics using (page) group by topic"
    found = mrflight.sql(query, v=visits, topics=topics).sort_by("topic").collect(progress=False)
    rows = pq.read_table(folder / "visits.parquet").to_pylist()
    counts = {1: 0, 2: 0, 3: 0}
    for row in rows:
        if row["seconds"] < 0.5 and row["page"] in counts:
            counts[row["page"]] += 1
    assert found.to_pylist() == [
        {"topic": t, "n": n} for t, n in zip("abc", counts.values(), strict=True)
    ]


def test_a_query_reads_a_stage_and_a_stage_reads_a_query(folder: Path) -> None:
    by_page = mrflight.read(folder / "visits.csv").group_by("page").agg(n="count(*)")
    best = mrflight.sql(
        "select page % 10 as digit, n from by_page where page is not null", by_page=by_page
    )
    found = best.group_by("digit").agg(n="sum(n)").sort_by("digit").collect(progress=False)
    wanted = [0] * 10
    for page in pq.read_table(folder / "visits.parquet")["page"].to_pylist():
        if page is not None:
            wanted[page % 10] += 1
    assert found.to_pydict() == {"digit": list(range(10)), "n": wanted}
