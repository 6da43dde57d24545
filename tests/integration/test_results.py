"""Results in the hands of the caller: the rows that DuckDB has, and nothing that stays behind."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.errors import (
    BadRowError,
    JobError,
    JobFileError,
    UserFunctionError,
)
from mrflight.units import format_count
from tests.support.suite.messages import refused

ROWS = 6_000
SMALL = {"cluster.workers": 2, "cluster.memory": "1 GiB"}

Dataset = mrflight.Dataset


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Return rows in the current folder: visit n of user ``n % 7``, in two files."""
    monkeypatch.chdir(tmp_path)
    table = pa.table({"user": [n % 7 for n in range(ROWS)], "n": list(range(ROWS))})
    (tmp_path / "visits").mkdir()
    half = ROWS // 2
    pq.write_table(table[:half], "visits/a.parquet", row_group_size=700)
    pq.write_table(table[half:], "visits/b.parquet", row_group_size=700)
    pq.write_table(pa.table({"user": [1, 2, 9], "name": ["x", None, "z"]}), "users.parquet")
    return mrflight.read("visits").with_settings(SMALL)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "n", pc.multiply(batch["n"], 2))


once = datafusion.udf(lambda array: array, [pa.int64()], pa.int64(), "immutable", name="once")


def users() -> Dataset:
    return mrflight.read("users.parquet")


SHAPES: dict[str, tuple[Callable[[Dataset], Dataset], str, bool]] = {
    "read": (lambda rows: rows, "from visits", True),
    "map": (lambda rows: rows.map(doubled), "select user, n * 2 as n from visits", True),
    "sql": (
        lambda rows: rows.sql("select n, user + 1 as u from visits where n % 3 = 0"),
        "select n, user + 1 as u from visits where n % 3 = 0",
        True,
    ),
    "no rows": (
        lambda rows: rows.sql("select n from visits where n < 0"),
        "select n from visits where n < 0",
        True,
    ),
    "union": (lambda rows: rows.union(rows), "from visits union all from visits", True),
    "keyed": (lambda rows: rows.key_by("user"), "from visits", False),
    "groups": (
        lambda rows: rows.group_by("user").agg(n="count(*)", total="sum(n)"),
        "select user, count(*) as n, sum(n)::bigint as total from visits group by user",
        False,
    ),
    "having": (
        lambda rows: (
            rows.filter(mrflight.col("n") > 5, once(mrflight.col("user")) < 9)
            .group_by("user")
            .agg(total="sum(n)")
            .sort_by("user")
            .filter("total % 2 = 0")
            .select("user", "total", half="total / 2")
        ),
        "select user, sum(n)::bigint as total, (sum(n) // 2)::bigint as half from visits "
        "where n > 5 group by user having sum(n) % 2 = 0 order by user",
        True,
    ),
    "total": (lambda rows: rows.agg(n="max(n)"), "select max(n) as n from visits", True),
    "join": (
        lambda rows: rows.join(users().broadcast(wanted=False), on="user", how="left"),
        "select visits.*, name from visits left join users using (user)",
        False,
    ),
    "broadcast join": (
        lambda rows: rows.join(users().broadcast(), on="user"),
        "select visits.*, name from visits join users using (user)",
        False,
    ),
    "order": (
        lambda rows: rows.sort_by("user desc", "n").with_shuffle(partitions=5),
        "from visits order by user desc, n",
        True,
    ),
    "range": (
        lambda rows: rows.repartition("n", partitions=5, partitioner="range"),
        "from visits order by n",
        True,
    ),
    "top": (
        lambda rows: rows.sort_by("n desc").limit(3),
        "from visits order by n desc limit 3",
        True,
    ),
}


SLOW = ("map", "sql", "union", "keyed", "total", "join", "range", "top")
"""Shapes that go the way of others."""


@pytest.mark.slow_but("read", "no rows")
@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=pytest.mark.slow if shape in SLOW else ()) for shape in SHAPES],
)
def test_the_rows_are_those_of_duckdb(
    visits: Dataset, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made, query, is_ordered = SHAPES[shape]
    database: Any = duckdb.connect()
    database.execute("create view visits as from 'visits/*.parquet'")
    database.execute("create view users as from 'users.parquet'")
    expected = database.sql(query).to_arrow_table()
    found = made(visits).collect()
    assert capsys.readouterr().err.endswith(f"result: {format_count(found.num_rows, 'row')} read\n")
    assert found.schema == expected.schema
    assert found.schema == made(visits).schema
    if not is_ordered:
        by_all = [(name, "ascending") for name in found.column_names]
        found, expected = found.sort_by(by_all), expected.sort_by(by_all)
    assert found.to_pylist() == expected.to_pylist()
    if shape in ("read", "map", "sql", "no rows", "union", "having", "top"):
        assert made(visits).head(10).to_pylist() == expected[:10].to_pylist()
        assert made(visits).head(0).schema == expected.schema


def test_frames_of_other_libraries_have_the_same_rows(visits: Dataset) -> None:
    total = visits.agg(n="count(*)")
    assert total.to_pandas().to_dict("list") == {"n": [ROWS]}
    assert total.to_polars().to_dicts() == [{"n": ROWS}]


@pytest.mark.slow
def test_rows_are_counted_in_the_files_or_by_a_job(visits: Dataset) -> None:
    arrow = visits.collect()
    pa.feather.write_feather(arrow, "visits.arrow", chunksize=700)
    pa.csv.write_csv(arrow, "visits.csv")
    with_nothing_run = {"cluster.metadata": "grpc+tcp://127.0.0.1:1"}
    for path in ("visits", "visits.arrow"):
        assert mrflight.read(path).with_settings(with_nothing_run).count() == ROWS
    assert mrflight.read("visits.csv").key_by("n").with_settings(SMALL).count() == ROWS
    few = visits.map(lambda batch: batch.slice(0, 1))
    assert few.count() == few.collect().num_rows < ROWS
    assert visits.limit(5).count() == 5


def test_columns_are_described(visits: Dataset) -> None:
    described = visits.join(users(), on="user", how="left").describe()
    assert described.to_pylist() == [
        {"column": "user", "type": "int64", "count": ROWS, "nulls": 0, "min": "0", "max": "6"}
        | measures([n % 7 for n in range(ROWS)]),
        {"column": "n", "type": "int64", "count": ROWS, "nulls": 0, "min": "0"}
        | {"max": str(ROWS - 1), **measures(list(range(ROWS)))},
        {"column": "name", "type": "string", "count": ROWS // 7, "min": "x", "max": "x"}
        | {"nulls": ROWS - ROWS // 7, **dict.fromkeys(measures([1, 2]))},
    ]


def measures(values: list[int]) -> dict[str, Any]:
    """Return what describes numbers."""
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    exact = {"mean": statistics.mean(values), "std": statistics.stdev(values)}
    rank_error = 0.001 * max(values)
    return {name: pytest.approx(value) for name, value in exact.items()} | {
        name: pytest.approx(value, abs=rank_error)
        for name, value in zip(("25%", "50%", "75%"), quartiles, strict=True)
    }


@pytest.mark.slow
def test_the_head_reads_no_further_than_it_needs(visits: Dataset) -> None:
    """The end of the second file cannot be read as numbers."""
    Path("csv").mkdir()
    Path("csv/a.csv").write_text("n\n" + "\n".join(map(str, range(10))) + "\n")
    beyond_the_sample = "0\n" * 2**20
    Path("csv/b.csv").write_text(f"n\n{beyond_the_sample}x\n")
    rows = mrflight.read("csv", types={"n": "int64"}).with_settings(SMALL)
    assert rows.head(10).to_pylist() == [{"n": n} for n in range(10)]
    with pytest.raises(BadRowError, match=r"b\.csv") as failed:
        rows.head(3 * 2**20)
    assert failed.value.__notes__[0].startswith("map ")
    with pytest.raises(UserFunctionError, match="KeyError"):
        rows.map(lambda batch: batch["nothing"]).head(1)


@pytest.mark.slow
def test_the_schema_of_mapped_files_is_what_the_functions_return(visits: Dataset) -> None:
    named = visits.map(lambda batch: batch.rename_columns(["who", "n"]))
    assert named.schema == pa.schema([("who", pa.int64()), ("n", pa.int64())])
    assert named.group_by("who").agg(mean="mean(n)").schema.field("mean").type == pa.float64()
    reduced = visits.reduce(lambda table: table.select(["n"]), key="user")
    with refused(JobFileError):
        _ = reduced.schema
    assert reduced.head(0).schema == pa.schema([("n", pa.int64())])
    assert reduced.describe()["column"].to_pylist() == ["n"]


def above(visits: Dataset, least: int) -> Dataset:
    """Return users by a function whose result has the type null if it has no rows."""

    def large(table: pa.Table) -> pa.Table:
        return pa.table({"user": [each for each in table["user"].to_pylist() if each > least]})

    return visits.reduce(large, key="user").with_shuffle(partitions=20)


def test_a_function_may_infer_other_types_if_it_returns_no_rows(visits: Dataset) -> None:
    found = above(visits, 3).collect()["user"].to_pylist()
    assert sorted(found) == sorted(n % 7 for n in range(ROWS) if n % 7 > 3)
    assert above(visits, 9).collect() == pa.table({"user": pa.nulls(0)})


@pytest.mark.slow
def test_a_stage_reads_what_such_a_function_returns(visits: Dataset) -> None:
    counted = above(visits, 3).group_by("user").agg(n="count(*)").sort_by("user").collect()
    assert counted.to_pylist() == [{"user": u, "n": len(range(u, ROWS, 7))} for u in (4, 5, 6)]
    assert above(visits, 9).agg(n="count(*)").collect().to_pylist() == [{"n": 0}]


def test_mistakes_are_told_before_anything_runs(visits: Dataset) -> None:
    with refused(JobFileError):
        visits.head(-1)
    with refused(JobError):
        visits.join(visits, on="user").collect()


def test_a_table_is_printed(visits: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    long = "select n, repeat('ab', 40) as text, cast(null as int) as nothing from visits"
    visits.sql(long).show(2)
    printed = capsys.readouterr().out
    assert [line.strip("│ ").split() for line in printed.splitlines() if line[0] == "│"] == [
        [n, "│", "ab" * 15 + "a…", "│", "null"] for n in "01"
    ]
    assert printed.splitlines()[-1] == "first 2 rows"
    assert max(map(len, printed.splitlines())) <= 80
    many = ", ".join(f"n as column_number_{number}" for number in range(9))
    visits.sql(f"select {many} from visits where n < 1").show()
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith("1 row; 5 columns not shown: column_number_4, ")
    assert max(map(len, printed.splitlines()[:-1])) <= 80
