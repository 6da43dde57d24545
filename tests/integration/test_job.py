"""Whole jobs: real files, the real driver and its server processes, a one-process oracle."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

import mrflight
from tests.support.commands.driver import drive, write_job
from tests.support.commands.leftovers import nothing_left_over
from tests.support.jobs.clicks_job import VISITS, WEIGH, as_read, expected_clicks, write_visits
from tests.support.queries.oracle import grouped, rows

pytestmark = pytest.mark.runs_on_ray


@pytest.mark.slow_but("arrow-local")
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "json"])
def test_the_clicks_job_equals_a_single_process_group_by(
    clicks: Path, tmp_path: Path, kind: str
) -> None:
    write_visits(tmp_path / "visits", kind)
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(clicks, "--set=job.speculation=false", environment=environment)
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out" / "clicks")
    assert rows(table.to_pyarrow_table()) == rows(expected_clicks(as_read(kind)))
    result = done.result
    assert result["state"] == "committed"
    assert (result["rows_in"], result["rows_out"]) == (20_000, 998)
    assert (result["partitions"], result["version"]) == (7, 0)
    assert result["table"] == str(tmp_path / "out" / "clicks")
    assert result["attempts"] == {"map": 4, "reduce": 7, "failed": 0}
    assert result["bytes_shuffled"] > 20_000
    assert set(result["seconds"]) == {"total", "start", "map", "reduce", "commit"}
    assert len(table.file_uris()) == 7


@pytest.mark.slow_but("shared-2-local")
@pytest.mark.also_on_ray("flight-1")
@pytest.mark.parametrize(("transport", "replicas"), [("shared", 1), ("flight", 1), ("shared", 2)])
def test_the_result_is_the_same_over_each_transport(
    clicks: Path, tmp_path: Path, transport: str, replicas: int
) -> None:
    """Two copies of a row are sent over Flight, and read in shared memory."""
    write_visits(tmp_path / "visits", "parquet")
    options = (f"cluster.transport={transport}", f"shuffle.replicas={replicas}")
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(clicks, *(f"--set={each}" for each in options), environment=environment)
    assert done.code == 0, done.stderr
    assert done.result["bytes_shuffled"] > 20_000
    table = DeltaTable(tmp_path / "out" / "clicks").to_pyarrow_table()
    assert rows(table) == rows(expected_clicks(as_read("parquet")))


def test_the_table_is_read_by_duckdb_and_polars_as_well(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    assert drive(clicks).code == 0
    table = tmp_path / "out" / "clicks"
    clicks_table = expected_clicks(as_read("csv"))
    expected = rows(clicks_table)
    assert rows(pl.read_delta(str(table)).to_arrow().cast(clicks_table.schema)) == expected
    parts = duckdb.read_parquet([str(path) for path in table.glob("*.parquet")])
    assert sorted(parts.fetchall(), key=repr) == expected


def test_a_csv_file_is_split_over_map_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file larger than a split: several map tasks, the same result."""
    monkeypatch.setattr("mrflight.planner.stage_plan._MIN_SPLIT_BYTES", 800_000)
    rows_in = 400_000
    table = pa.table({"k": pa.array(range(rows_in)).cast(pa.string())})
    wide = table.append_column("pad", pa.array(["x" * 20]).take(pa.array([0] * rows_in)))
    pyarrow.csv.write_csv(wide, tmp_path / "one.csv")
    job = write_job(
        tmp_path,
        """
        [job]
        name = "split"
        [inputs.one]
        path = "one.csv"
        types = { k = "int64" }
        columns = ["k"]
        [shuffle]
        partitions = 3
        [reduce]
        group_by = ["k"]
        aggregate = { n = "count(*)" }
        [output]
        table = "out"
        format = "parquet"
        """,
    )
    result = mrflight.run(job)
    assert result.attempts.map >= 2  # how many depends on the cores of the machine
    assert result.rows_in == result.rows_out == rows_in
    keys = pa.concat_tables(
        [pyarrow.parquet.read_table(path) for path in (tmp_path / "out").glob("*.parquet")]
    )
    assert pa.compute.sum(keys["k"]).as_py() == rows_in * (rows_in - 1) // 2
    assert pa.compute.min_max(keys["n"]).as_py() == {"min": 1, "max": 1}


@pytest.mark.also_on_ray
def test_many_small_files_are_read_by_few_maps_and_again_if_a_worker_dies(tmp_path: Path) -> None:
    files, each = 300, 5
    (tmp_path / "in").mkdir()
    for number in range(files):
        text = "".join(f"{number * each + row},{row}\n" for row in range(each))
        (tmp_path / "in" / f"{number:03}.csv").write_text(f"k,v\n{text}")
    (tmp_path / "functions.py").write_text(
        """
import os, signal
from pathlib import Path

def dies_once(batch):
    begun = Path(__file__).parent / "begun"
    if 700 in batch["k"].to_pylist() and not begun.exists():
        begun.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch
"""
    )
    job = write_job(
        tmp_path,
        """
        [job]
        name = "small"
        speculation = false
        [inputs.rows]
        path = "in"
        map = "functions:dies_once"
        key = ["k"]
        [shuffle]
        partitions = 2
        [output]
        table = "out"
        format = "parquet"
        [cluster]
        workers = 2
        """,
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    attempts = done.result["attempts"]
    assert attempts["failed"] == 1
    assert 4 <= attempts["map"] <= 6
    assert done.result["rows_in"] == done.result["rows_out"] == files * each
    found = duckdb.sql(f"select k, v from '{tmp_path}/out/*.parquet' order by k").fetchall()
    assert found == duckdb.sql(f"select k, v from '{tmp_path}/in/*.csv' order by k").fetchall()


def test_several_inputs_meet_in_one_table(tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "arrow")
    pyarrow.parquet.write_table(VISITS.slice(0, 100), tmp_path / "late.parquet")
    job = write_job(
        tmp_path,
        """
        [job]
        name = "several"
        [inputs.visits]
        path = "visits"
        [inputs.late]
        path = "late.parquet"
        [shuffle]
        partitions = 4
        [reduce]
        group_by = ["visitor", "url"]
        aggregate = { visits = "count(*)", first_ms = "first(ms)", all_ms = "count_distinct(ms)" }
        [output]
        table = "out"
        """,
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    both = pa.concat_tables([VISITS, VISITS.slice(0, 100)])
    expected = grouped(
        both.append_column("one", pa.array([1] * len(both))),
        ["visitor", "url"],
        visits=("one", "sum"),
        first_ms=("ms", "first"),
        all_ms=("ms", "count_distinct"),
    )
    assert rows(DeltaTable(tmp_path / "out").to_pyarrow_table()) == rows(expected)


def test_an_input_without_rows_makes_an_empty_table(clicks: Path, tmp_path: Path) -> None:
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "empty.csv").write_text("url,visitor,ms\n")
    done = drive(clicks, "--set", "inputs.visits.types.ms=int64")
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out" / "clicks").to_pyarrow_table()
    assert table.num_rows == 0
    assert table.column_names == ["url", "clicks", "visits", "slowest"]


def test_a_map_may_return_views(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    views = WEIGH.replace('batch["url"]', 'batch["url"].cast(pa.string_view())')
    (tmp_path / "clicks.py").write_text(views)
    assert drive(clicks).code == 0
    table = DeltaTable(tmp_path / "out" / "clicks").to_pyarrow_table()
    assert rows(table) == rows(expected_clicks(as_read("csv")))
