"""Whole jobs: real files, the real driver and its server processes, a one-process oracle."""

from __future__ import annotations

import subprocess
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.driver import drive, driver_command, write_job
from tests.support.leftovers import nothing_left_over, tree
from tests.support.oracle import grouped, rows

VISITS = pa.table(
    {
        "url": [f"www.s{i % 997:09}.com" if i % 50 else None for i in range(20_000)],
        "visitor": ["User" if i % 3 else "Robot" for i in range(20_000)],
        "ms": [i * 7919 % 100_003 for i in range(20_000)],
    }
)

CLICKS = """
[job]
name = "clicks"
[inputs.visits]
path = "visits/*"
map = "clicks:weigh"
key = ["url"]
[shuffle]
partitions = 7
[reduce]
group_by = ["url"]
aggregate = { clicks = "sum(weight)", visits = "count(*)", slowest = "max(ms)" }
[output]
table = "out/clicks"
mode = "overwrite"
[cluster]
workers = 2
data_servers = 2
"""

WEIGH = """
import pyarrow as pa
import pyarrow.compute as pc

def weigh(batch):
    weight = pc.if_else(pc.equal(batch["visitor"], "User"), 2, 1).cast(pa.int32())
    return pa.record_batch({"url": batch["url"], "weight": weight, "ms": batch["ms"]})
"""


def write_visits(folder: Path, kind: str) -> None:
    folder.mkdir()
    for part in range(4):
        piece = VISITS.slice(part * 5_000, 5_000)
        path = folder / f"visits-{part}.{kind}"
        if kind == "csv":
            pyarrow.csv.write_csv(piece, path)
        elif kind == "parquet":
            pyarrow.parquet.write_table(piece, path, row_group_size=1_500)
        elif kind == "arrow":
            pyarrow.feather.write_feather(piece, path, compression="uncompressed", chunksize=1_500)
        else:
            path.write_text(pl.from_arrow(piece).write_ndjson())


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """The clicks job, without its input."""
    (tmp_path / "clicks.py").write_text(WEIGH)
    return write_job(tmp_path, CLICKS)


def as_read(kind: str) -> pa.Table:
    """The visits as a file of this kind gives them: csv knows no null among its strings."""
    if kind != "csv":
        return VISITS
    return VISITS.set_column(0, "url", VISITS["url"].fill_null(""))


def expected_clicks(visits: pa.Table) -> pa.Table:
    weight = [2 if visitor == "User" else 1 for visitor in VISITS["visitor"].to_pylist()]
    table = visits.append_column("weight", pa.array(weight)).append_column(
        "one", pa.array([1] * len(weight))
    )
    return grouped(
        table, ["url"], clicks=("weight", "sum"), visits=("one", "sum"), slowest=("ms", "max")
    )


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "json"])
def test_the_clicks_job_equals_a_single_process_group_by(
    clicks: Path, tmp_path: Path, kind: str
) -> None:
    write_visits(tmp_path / "visits", kind)
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(clicks, environment=environment)
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


def test_the_table_is_read_by_duckdb_and_polars_as_well(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    assert drive(clicks).code == 0
    table = tmp_path / "out" / "clicks"
    clicks_table = expected_clicks(as_read("csv"))
    expected = rows(clicks_table)
    assert rows(pl.read_delta(str(table)).to_arrow().cast(clicks_table.schema)) == expected
    parts = duckdb.read_parquet([str(path) for path in table.glob("*.parquet")])
    assert sorted(parts.fetchall(), key=repr) == expected


def test_a_csv_file_is_split_over_map_tasks(tmp_path: Path) -> None:
    """One file larger than a split: several map tasks, the same result."""
    rows_in = 4_000_000
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
    done = drive(job)
    assert done.code == 0, done.stderr
    assert done.result["attempts"]["map"] >= 2
    assert done.result["rows_in"] == done.result["rows_out"] == rows_in
    keys = pa.concat_tables(
        [pyarrow.parquet.read_table(path) for path in (tmp_path / "out").glob("*.parquet")]
    )
    assert pa.compute.sum(keys["k"]).as_py() == rows_in * (rows_in - 1) // 2
    assert pa.compute.min_max(keys["n"]).as_py() == {"min": 1, "max": 1}


def test_repartition_keeps_every_row_and_brings_equal_keys_together(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "in", VISITS)
    job = write_job(
        tmp_path,
        """
        [job]
        name = "repartition"
        [inputs.visits]
        path = "in"
        key = ["url"]
        [shuffle]
        partitions = 5
        compression = "zstd"
        [output]
        table = "out"
        """,
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out")
    assert rows(table.to_pyarrow_table()) == rows(VISITS)
    keys = [set(pyarrow.parquet.read_table(uri)["url"].to_pylist()) for uri in table.file_uris()]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 998


@pytest.mark.parametrize("partitions", [1, 4])
def test_range_partitions_in_order_are_sorted(tmp_path: Path, partitions: int) -> None:
    write_visits(tmp_path / "visits", "parquet")
    job = write_job(
        tmp_path,
        f"""
        [job]
        name = "sort"
        [inputs.visits]
        path = "visits"
        key = ["ms", "url"]
        [shuffle]
        partitions = {partitions}
        partitioner = "range"
        [output]
        table = "out"
        format = "arrow"
        """,
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    parts = sorted((tmp_path / "out").glob("part-*.arrow"))
    assert len(parts) == partitions
    result = pa.concat_tables([pyarrow.feather.read_table(part) for part in parts])
    expected = VISITS.sort_by([("ms", "ascending"), ("url", "ascending")])
    assert result.select(["ms", "url"]).equals(expected.select(["ms", "url"]))
    assert rows(result) == rows(VISITS)
    sizes = [pyarrow.feather.read_table(part).num_rows for part in parts]
    assert max(sizes) <= 1.5 * len(VISITS) / partitions


def test_round_robin_deals_rows_out_evenly(tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    job = write_job(
        tmp_path,
        """
        [job]
        name = "deal"
        [inputs.visits]
        path = "visits"
        [shuffle]
        partitions = 8
        partitioner = "round_robin"
        [output]
        table = "out"
        format = "parquet"
        """,
    )
    assert drive(job).code == 0
    parts = [pyarrow.parquet.read_table(path) for path in (tmp_path / "out").glob("*.parquet")]
    assert [part.num_rows for part in parts] == [2_500] * 8
    assert rows(pa.concat_tables(parts)) == rows(as_read("csv"))


def test_a_users_partitioner_and_reduce_function(tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    (tmp_path / "mine.py").write_text(
        """
import pyarrow as pa
import pyarrow.compute as pc

def by_remainder(batch, key, partitions):
    values = batch[key[0]].to_numpy()
    return pa.array((values % partitions).astype("int32"))

def summary(table):
    return pa.table({"rest": [table["ms"][0].as_py() % 3], "rows": [table.num_rows]})
"""
    )
    job = write_job(
        tmp_path,
        """
        [job]
        name = "mine"
        [inputs.visits]
        path = "visits"
        key = ["ms"]
        [shuffle]
        partitions = 3
        partitioner = "mine:by_remainder"
        [reduce]
        function = "mine:summary"
        [output]
        table = "out"
        format = "csv"
        """,
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    parts = [pyarrow.csv.read_csv(path) for path in (tmp_path / "out").glob("*.csv")]
    counts = dict.fromkeys(range(3), 0)
    for ms in VISITS["ms"].to_pylist():
        counts[ms % 3] += 1
    assert rows(pa.concat_tables(parts)) == sorted(counts.items(), key=repr)


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


def test_modes_append_and_overwrite_make_one_version_each(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    versions = [
        drive(clicks, "--set", f"output.mode={mode}").result["version"]
        for mode in ("error", "append", "overwrite", "append")
    ]
    assert versions == [0, 1, 2, 3]
    table = DeltaTable(tmp_path / "out" / "clicks")
    assert table.to_pyarrow_table().num_rows == 2 * 998
    table.load_as_version(2)
    assert rows(table.to_pyarrow_table()) == rows(expected_clicks(as_read("csv")))


def test_partition_by_makes_folders_that_readers_prune(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    done = drive(
        clicks,
        *("--set", "reduce.group_by=['url', 'ms']"),
        *("--set", "reduce.aggregate={clicks='sum(weight)'}"),
        *("--set", "inputs.visits.map='clicks:by_hundred'"),
        *("--set", "output.partition_by=['ms']"),
    )
    assert done.code == 2
    assert "by_hundred" in done.message
    (tmp_path / "clicks.py").write_text(
        WEIGH
        + """
def by_hundred(batch):
    weighed = weigh(batch)
    return pa.record_batch({
        "url": weighed["url"], "weight": weighed["weight"],
        "ms": pc.cast(pc.divide(weighed["ms"], 25_000), pa.int64()),
    })
"""
    )
    done = drive(
        clicks,
        *("--set", "reduce.group_by=['url', 'ms']"),
        *("--set", "reduce.aggregate={clicks='sum(weight)'}"),
        *("--set", "inputs.visits.map='clicks:by_hundred'"),
        *("--set", "output.partition_by=['ms']"),
    )
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out" / "clicks")
    assert table.metadata().partition_columns == ["ms"]
    one = table.to_pyarrow_table(filters=[("ms", "=", 2)])
    assert set(one["ms"].to_pylist()) == {2}
    whole = table.to_pyarrow_table()
    assert set(whole["ms"].to_pylist()) == {0, 1, 2, 3, 4}
    assert (
        pa.compute.sum(whole["clicks"]).as_py()
        == pa.compute.sum(expected_clicks(VISITS)["clicks"]).as_py()
    )


def test_a_rerun_of_the_same_run_id_is_a_no_op(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    options = ("--set", "job.run_id=2026-11-20", "--set", "output.mode=append")
    first = drive(clicks, *options)
    before = tree(tmp_path / "out")
    second = drive(clicks, *options)
    assert (first.code, second.code) == (0, 0)
    assert second.result["state"] == "committed"
    assert second.result["version"] == first.result["version"] == 0
    assert tree(tmp_path / "out") == before


def test_an_input_without_rows_makes_an_empty_table(clicks: Path, tmp_path: Path) -> None:
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "empty.csv").write_text("url,visitor,ms\n")
    done = drive(clicks, "--set", "inputs.visits.types.ms=int64")
    assert done.code == 0, done.stderr
    table = DeltaTable(tmp_path / "out" / "clicks").to_pyarrow_table()
    assert table.num_rows == 0
    assert table.column_names == ["url", "clicks", "visits", "slowest"]


def test_what_a_map_prints_does_not_reach_the_result(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    shouting = WEIGH.replace("    return", "    print('working', end='', flush=True)\n    return")
    (tmp_path / "clicks.py").write_text(shouting)
    done = drive(clicks)
    assert done.result["state"] == "committed"
    assert "working" in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "> /dev/full", "2> /dev/full"])
def test_a_job_that_nobody_listens_to_commits_all_the_same(
    clicks: Path, tmp_path: Path, closed: str
) -> None:
    write_visits(tmp_path / "visits", "csv")
    command = " ".join(driver_command(clicks))
    done = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert DeltaTable(tmp_path / "out" / "clicks").version() == 0


def test_a_map_may_return_views(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    views = WEIGH.replace('batch["url"]', 'batch["url"].cast(pa.string_view())')
    (tmp_path / "clicks.py").write_text(views)
    assert drive(clicks).code == 0
    table = DeltaTable(tmp_path / "out" / "clicks").to_pyarrow_table()
    assert rows(table) == rows(expected_clicks(as_read("csv")))


def test_progress_is_plain_lines_in_a_pipe(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    lines = drive(clicks).stderr.splitlines()
    assert "map: 1 of 4" in lines
    assert any(line.startswith("map: 20,000 rows read, ") for line in lines)
    assert "reduce: 998 rows written" in lines
    assert "commit: 7 files, version 0" in lines
    assert lines[-1] == f"{tmp_path}/out/clicks, version 0"


def test_what_functions_print_is_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (tmp_path / "rows.csv").write_text("k\n1\n2\n")
    (tmp_path / "prints.py").write_text(
        "def rows(batch):\n    print('map saw', batch.num_rows)\n    return batch\n"
        "def table(table):\n    print('reduce saw', table.num_rows)\n    return table\n"
    )
    job = write_job(
        tmp_path,
        """
[job]
name = "prints"
[inputs.rows]
path = "rows.csv"
map = "prints:rows"
key = ["k"]
[shuffle]
partitions = 1
[reduce]
function = "prints:table"
[output]
table = "out"
""",
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    assert "map saw 2\n" in done.stderr
    assert "reduce saw 2\n" in done.stderr
    assert len(done.stdout.splitlines()) == 1
