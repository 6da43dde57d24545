"""Jobs written in Python, run: callables of all kinds in workers, and what a script sees of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.errors import JobError, UserFunctionError
from tests.support.commands.leftovers import tree
from tests.support.suite.messages import refused

pytestmark = pytest.mark.runs_on_ray

ROWS = 3_000
SMALL = {"cluster.workers": 2, "cluster.memory": "1 GiB"}


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mrflight.Dataset:
    """Return a dataset in the current folder: visit n has the url ``n % 7`` and the weight n."""
    monkeypatch.chdir(tmp_path)
    table = pa.table({"url": [n % 7 for n in range(ROWS)], "weight": list(range(ROWS))})
    pq.write_table(table, "visits.parquet", row_group_size=1_000)
    return mrflight.read("visits.parquet").with_settings(SMALL)


def test_maps_groups_and_an_order_by_lambdas(visits: mrflight.Dataset) -> None:
    factor, least = 10, 4

    def scaled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "weight", pc.multiply(batch["weight"], factor))

    result = (
        visits.map(scaled)
        .map(lambda batch: batch.filter(pc.greater_equal(batch["url"], least)))
        .group_by("url")
        .agg(weight="sum(weight)", n="count(*)")
        .sort_by("url desc")
        .limit(2)
        .write_delta("out")
    )
    assert (result.rows_in, result.rows_out, result.version) == (ROWS, 2, 0)
    expected = [
        {"url": url, "weight": factor * sum(range(url, ROWS, 7)), "n": len(range(url, ROWS, 7))}
        for url in (6, 5)
    ]
    assert mrflight.read_table("out").to_pylist() == expected


def test_maps_and_reduces_of_frames(visits: mrflight.Dataset) -> None:
    def heavy(rows: pl.DataFrame) -> pl.DataFrame:
        weights = pl.col("weight")
        return rows.filter(weights > 9).with_columns(text=weights.cast(pl.String))

    def sums(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.groupby("url").agg(weight=("weight", "sum"), text=("text", "min"))

    mapped = visits.map(heavy).map(lambda batch: batch.slice(0, batch.num_rows))
    assert mapped.head(1).to_pylist() == [{"url": 3, "weight": 10, "text": "10"}]
    mapped.reduce(sums, key="url").sort_by("url").write_delta("out")
    made = mrflight.read_table("out")
    weights = {url: [n for n in range(url, ROWS, 7) if n > 9] for url in range(7)}
    assert made.to_pylist() == [
        {"url": url, "weight": sum(of_url), "text": min(map(str, of_url))}
        for url, of_url in weights.items()
    ]
    assert made.schema.field("text").type == pa.string()


def test_a_function_that_returns_no_table(visits: mrflight.Dataset) -> None:
    def urls(rows: pd.DataFrame) -> Any:
        return rows["url"]

    for made, what in ((visits.map(urls), "the map"), (visits.reduce(urls, key="url"), "the red")):
        with refused(UserFunctionError) as caught:
            made.write_delta("out")
        assert str(caught.value).startswith(what)
    assert not Path("out").exists()


def test_a_join_of_what_a_local_function_made(visits: mrflight.Dataset) -> None:
    def first(table: pa.Table) -> pa.Table:
        return table.group_by("url").aggregate([("weight", "min")])

    by_parity = visits.repartition(
        "url",
        partitions=2,
        partitioner=lambda batch, key, partitions: pc.cast(
            pc.bit_wise_and(batch[key[0]], partitions - 1), pa.int32()
        ),
    )
    rows = by_parity.join(visits.reduce(first, key="url"), on="url")
    result = rows.write_parquet("out")
    assert result.rows_out == ROWS
    made = pq.read_table("out")
    assert sorted(made["weight"].to_pylist()) == list(range(ROWS))
    assert made["weight_min"].to_pylist() == [n % 7 for n in made["weight"].to_pylist()]


RENAMED: list[tuple[str, Callable[[mrflight.Dataset, mrflight.Dataset], mrflight.Dataset]]] = [
    (
        "select * from a join (select id, v as v2 from a) using (id)",
        lambda a, _: a.join(a.sql("select id, v as v2 from a"), on="id"),
    ),
    (
        "select id, v from a where v > 3 union all by name select id, -v as v from a",
        lambda a, _: a.sql("select id, v from a where v > 3").union(
            a.sql("select id, -v as v from a")
        ),
    ),
    (
        "select id, b.v as v, a.v as w from b join a using (id) where a.v > 2",
        lambda a, b: b.join(a.sql("select id, v as w from a where v > 2"), on="id"),
    ),
    (
        "select id, a.v as v, b.v as w from a join b using (id) where b.v > 12",
        lambda a, b: a.sql("select id, v from a").join(
            b.sql("select id, v as w from a where v > 12"), on="id"
        ),
    ),
    (
        "select id, v + 1 as n from a union all select id, v + 1 as n from b",
        lambda a, b: a.union(b).sql("select id, v + 1 as n from a"),
    ),
]


@pytest.mark.parametrize(("query", "made"), RENAMED, ids=[query for query, _ in RENAMED])
def test_sql_of_inputs_of_one_name_gives_what_duckdb_gives(
    query: str,
    made: Callable[[mrflight.Dataset, mrflight.Dataset], mrflight.Dataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two files are called ``a``, as their base names are."""
    monkeypatch.chdir(tmp_path)
    tables = {}
    for name, start in (("a", 0), ("b", 10)):
        tables[name] = pa.table({"id": list(range(6)), "v": [start + n for n in range(6)]})
        (tmp_path / name).mkdir()
        pq.write_table(tables[name], tmp_path / name / "a.parquet")
    a, b = (mrflight.read(f"{name}/a.parquet").with_settings(SMALL) for name in tables)
    made(a, b).write_parquet("out")
    database: Any = duckdb.connect()
    for name, table in tables.items():
        database.register(name, table)
    expected = database.sql(query).to_arrow_table()
    found = pq.read_table("out")
    assert found.column_names == expected.column_names
    by_all = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(by_all).to_pylist() == expected.sort_by(by_all).to_pylist()


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: rows.join(rows, on="url"),
        lambda rows: rows.sql("select url as x, weight as x from visits", key="url"),
        lambda rows: rows.reduce(len),
    ],
)
def test_a_mistake_is_told_without_an_output(
    visits: mrflight.Dataset,
    made: Callable[[mrflight.Dataset], mrflight.Dataset],
) -> None:
    for output in ((), ("out",)):
        with refused(JobError):
            made(visits).explain(*output)


SCRIPT = """
import mrflight
import pyarrow.compute as pc
from weights import heavier

LEAST = 2_000

def heavy(batch):
    return heavier(batch, LEAST)

if __name__ == "__main__":
    rows = mrflight.read("visits.parquet").map(heavy).with_settings({"cluster.workers": 1})
    print(rows.write_csv("out").rows_out)
"""


@pytest.mark.also_on_ray
def test_a_script_in_another_folder_with_a_module_beside_it(
    visits: mrflight.Dataset, tmp_path: Path
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "heavy.py").write_text(SCRIPT)
    (tmp_path / "jobs" / "weights.py").write_text(
        "import pyarrow.compute as pc\n"
        "def heavier(batch, least):\n"
        "    return batch.filter(pc.greater_equal(batch['weight'], least))\n"
    )
    done = subprocess.run(
        [sys.executable, "jobs/heavy.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


@pytest.mark.also_on_ray
def test_a_lambda_that_raises_is_told_with_its_line(visits: mrflight.Dataset) -> None:
    before = tree(Path.cwd())
    failing: Any = lambda batch: batch["nothing"]  # noqa: E731
    with pytest.raises(UserFunctionError) as failed:
        visits.map(failing).with_settings({"job.attempts": 1}).write_delta("out")
    line = failing.__code__.co_firstlineno
    message = str(failed.value)
    assert message.startswith(f"the map <lambda> ({Path(__file__).name}, line {line}), given ")
    assert f'{Path(__file__).name}", line {line}, in <lambda>' in message
    assert "KeyError" in message
    assert tree(Path.cwd()) == before


def test_files_of_several_paths(visits: mrflight.Dataset) -> None:
    pq.write_table(pa.table({"url": [0], "weight": [-1]}), "more.parquet")
    rows = mrflight.read(["more.parquet", Path("visits.*")]).with_settings(SMALL)
    assert "\ninput more:     parquet, 2 files, " in rows.explain()
    assert rows.collect()["weight"].to_pylist() == [-1, *range(ROWS)]
    for output, message in (
        (".", r"more.parquet, which read\(path\) reads, lies in "),
        ("more.parquet/out", "/out lies in "),
    ):
        with pytest.raises(JobError, match=message):
            rows.explain(output, format="parquet")


@pytest.mark.also_on_ray
def test_rows_in_memory_beside_files(visits: mrflight.Dataset) -> None:
    """Two relations of one connection, of which only one can be read at a time, and a frame."""
    names = pl.DataFrame({"url": [0, 3, 9], "name": ["zero", "three", "nine"]})
    connection: Any = duckdb.connect()
    costs = [connection.sql(f"select range as url, {n}.5 as cost from range(7)") for n in (1, 2)]
    joined = (
        visits.join(mrflight.read(names, name="names"), on="url")
        .join(mrflight.read(costs[0]).union(mrflight.read(costs[1])), on="url")
        .group_by("name")
        .agg(n="count(*)", cost="sum(cost)")
        .sort_by("name")
    )
    plan = joined.explain()
    assert "\ninput names:    polars.DataFrame, 3 rows, " in plan
    found = joined.collect()
    times = {"zero": len(range(0, ROWS, 7)), "three": len(range(3, ROWS, 7))}
    assert found.to_pylist() == [
        {"name": name, "n": 2 * times[name], "cost": 4.0 * times[name]}
        for name in ("three", "zero")
    ]


def test_rows_of_a_reader_are_taken_by_one_job(visits: mrflight.Dataset, tmp_path: Path) -> None:
    """Its maps are tried again, and its two inputs are the same rows, which are read once."""
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for start in range(0, 1_000, 100):
            read += 1
            yield pa.record_batch({"n": list(range(start, start + 100))})

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not Path(tmp_path, "failed").exists():
            Path(tmp_path, "failed").touch()
            raise OSError("only once")
        return batch

    (tmp_path / "spill").mkdir()
    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    rows = mrflight.read(reader).with_settings({**SMALL, "cluster.spill_dir": "spill"})
    mistake = rows.group_by("m").agg(n="count(*)")
    with pytest.raises(JobError, match="'m'"):
        mistake.collect()
    assert (rows.head(1).num_rows, read) == (1, 1)
    both = rows.union(mrflight.read(reader, name="again").map(fails_once))
    counted = both.group_by("n").agg(times="count(*)").collect()
    assert (counted.num_rows, set(counted["times"].to_pylist()), read) == (1_000, {2}, 10)
    assert list((tmp_path / "spill").iterdir()) == []
    with refused(JobError):
        rows.explain()


def test_a_plan_in_words(visits: mrflight.Dataset) -> None:
    before = tree(Path.cwd())
    counted = visits.map(lambda batch: batch).group_by("url").agg(n="count(*)")
    plan = counted.with_settings({"cluster.executor": "local"}).explain()
    assert plan.startswith(
        "job:            job, 1 stage\nworkers:        2\ndata servers:   1\n\ninput"
    )
    assert f"  map:          <lambda> ({Path(__file__).name}, line " in plan
    assert "\noutput:" not in plan
    with_output = visits.distinct().explain("out", format="csv", mode="append")
    assert with_output.endswith(
        f"output:         {Path.cwd()}/out\n  format:       csv\n  mode:         append"
    )
    assert tree(Path.cwd()) == before
