"""A partition that is much larger than the others is split into slices for several tasks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import mrflight
from mrflight.planner.reduce_tasks import ReduceTaskPlan, check_slices
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.tasks.side_slice import SideSlice
from tests.support.clusters.cluster import standing_cluster
from tests.support.commands.driver import write_job
from tests.support.queries.skewed_partition import FILES, ORDER, ROWS, watch_slices, write_rows

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "skew"
[inputs.rows]
path = "in/*.parquet"
key = ["key"]
[shuffle]
partitions = "auto"
PARTITIONER
[cluster]
workers = 4
[output]
table = "out"
"""

GROUPS = """
[reduce]
group_by = ["key"]
[reduce.aggregate]
total = "sum(value)"
rows = "count(*)"
first = "first(value)"
last = "last(value)"
spread = "stddev_pop(value)"
near = "approx_median(value)"
"""


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[ReduceTaskPlan]:
    return watch_slices(monkeypatch)


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    return write_rows(tmp_path / "in", seed=11)


def side_slices(slices: int) -> list[SideSlice]:
    """Return so many slices of the first input, without an outer remainder."""
    return [SideSlice(number, slices) for number in range(slices)]


def run(folder: Path, reduce: str = "", partitioner: str = "") -> mrflight.JobResult:
    text = JOB.replace("PARTITIONER", partitioner) + reduce
    result = mrflight.run(write_job(folder, text))
    assert (result.rows_in, result.state) == (FILES * ROWS, "committed")
    return result


def parts(folder: Path) -> list[str]:
    return [Path(uri).name for uri in DeltaTable(folder / "out").file_uris()]


@pytest.mark.slow
def test_rows_of_slices_are_written_by_their_tasks(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    result = run(tmp_path)
    (skewed,) = {partition_slice.partition.partition for partition_slice in slices}
    of_skewed = [name for name in parts(tmp_path) if name.startswith(f"part-{skewed:05d}")]
    assert len(of_skewed) == len(slices) == 3
    assert all(name.startswith(f"part-{skewed:05d}.") for name in of_skewed)
    assert result.rows_out == len(rows)
    assert DeltaTable(tmp_path / "out").to_pyarrow_table().sort_by(ORDER) == rows.sort_by(ORDER)
    written = [pq.read_table(tmp_path / "out" / name) for name in sorted(of_skewed, key=number)]
    values = pa.concat_tables(written)["value"].to_numpy()
    assert (np.diff(values) > 0).all()  # the partition is still in the order of the input


def number(name: str) -> int:
    return int(name.split(".")[1].split("-")[0])


@pytest.mark.slow
@pytest.mark.also_on_ray
def test_groups_of_slices_are_aggregated_twice(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    result = run(tmp_path, GROUPS)
    assert len(slices) == 2
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().sort_by("key")
    table = pa.TableGroupBy(rows, "key", use_threads=False).aggregate(
        [("value", "sum"), ([], "count_all"), ("value", "first"), ("value", "last")]
    )
    skewed = rows.filter(pc.equal(rows["key"], 7))["value"].to_numpy()
    spread, near = (found[name].to_numpy() for name in ("spread", "near"))
    assert spread[0] == pytest.approx(skewed.std(), rel=1e-9)  # values are 6e6 times as large
    assert near[0] == pytest.approx(np.median(skewed), abs=0.001 * FILES * ROWS)
    assert not spread[1:].any()
    assert (near == found["first"].to_numpy())[1:].all()
    found = found.drop_columns(["spread", "near"])
    expected = table.rename_columns(found.column_names).sort_by("key")
    assert found.cast(expected.schema) == expected
    assert result.rows_out == len(expected)
    assert not [name for name in parts(tmp_path) if "." in name.removesuffix(".parquet")]


@pytest.mark.slow
@pytest.mark.usefixtures("patient_drops")
def test_a_standing_cluster_keeps_nothing_of_the_second_shuffle(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    with standing_cluster() as cluster:
        overrides = {"cluster.metadata": cluster.metadata, "shuffle.replicas": 2}
        text = JOB.replace("PARTITIONER", "") + GROUPS
        result = mrflight.run(write_job(tmp_path, text), overrides=overrides)
        with mrflight.connect(cluster.metadata) as client:
            assert client.status().shuffles == []
    assert len(slices) == 2
    assert result.rows_out == len(rows["key"].unique())


@pytest.mark.slow_but("function")
@pytest.mark.parametrize(
    "reduce",
    [
        '[reduce]\ngroup_by = ["key"]\naggregate = { values = "count_distinct(value)" }\n',
        '[reduce]\nfunction = "whole:largest"\n',
    ],
    ids=["distinct", "function"],
)
def test_a_partition_that_needs_whole_groups_is_not_split(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan], reduce: str
) -> None:
    (tmp_path / "whole.py").write_text("def largest(table):\n    return table.slice(0, 1)\n")
    run(tmp_path, reduce)
    assert slices == []


def test_a_number_of_partitions_that_the_job_sets_is_kept(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    mrflight.run(
        write_job(tmp_path, JOB.replace("PARTITIONER", "")), overrides={"shuffle.partitions": 5}
    )
    assert slices == []
    assert len(parts(tmp_path)) == 5


@pytest.mark.slow
def test_rows_of_one_key_are_spread_over_ranges(tmp_path: Path, rows: pa.Table) -> None:
    mrflight.run(
        write_job(tmp_path, JOB.replace("PARTITIONER", 'partitioner = "range"')),
        overrides={"shuffle.partitions": 20},
    )
    files = [pq.read_table(tmp_path / "out" / name) for name in sorted(parts(tmp_path))]
    in_order = pa.concat_tables(files)
    assert in_order == rows.sort_by(ORDER)
    skewed = [set(file["key"].to_pylist()) == {7} for file in files]
    # The sampled keys decide how many ranges a key fills; one of them would have all of its rows.
    assert sum(skewed) >= 2
    assert max(len(file) for file in files) < len(rows) * 0.2 * 0.6


def write_others(folder: Path) -> pa.Table:
    """Write a table with key 7, which a fifth of the rows have, twice, and other keys once."""
    keys = [7, 7, *range(8, FILES * ROWS, 3), -1]
    others = pa.table({"key": keys, "name": [f"name {number}" for number in range(len(keys))]})
    (folder / "others").mkdir()
    pq.write_table(others, folder / "others" / "others.parquet")
    return others


SQL = """
[inputs.others]
path = "others/*.parquet"
key = ["key"]
broadcast = false
[reduce]
sql = """


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "is_sliced"),
    [
        (
            "select r.*, name from rows r join others o on r.key = o.key where name <> 'name 0'",
            True,
        ),
        ("select r.*, name from rows r left join others o on r.key = o.key", True),
        ("select r.*, name from others o left join rows r on r.key = o.key", False),
        ("select * from rows r where not exists (from others o where o.key = r.key)", True),
        ("select key, name from others o where exists (from rows r where o.key = r.key)", False),
        ("select key, count(*) as n from rows join others using (key) group by key", False),
        ("select key, name from others", False),
        ("select key from rows union all select key from others", False),
    ],
)
def test_a_skewed_key_of_sql_is_split_if_slices_give_the_answer(
    sql: str, is_sliced: bool, tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    write_others(tmp_path)
    sql = sql.replace("(from ", "(select 1 from ")
    result = mrflight.run(write_job(tmp_path, JOB.replace("PARTITIONER", "") + SQL + f'"{sql}"'))
    assert bool(slices) == is_sliced
    assert [partition_slice.side_slice for partition_slice in slices] == side_slices(len(slices))
    with duckdb.connect() as database:
        for name, folder in (("rows", "in"), ("others", "others")):
            database.execute(f"create view {name} as from '{tmp_path}/{folder}/*.parquet'")
        expected = database.sql(sql).to_arrow_table()
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().select(expected.column_names)
    order = [(name, "ascending") for name in expected.column_names]
    assert found.sort_by(order) == expected.cast(found.schema).sort_by(order)
    assert result.rows_out == len(expected)
    assert result.attempts.failed == 0


STAGES = """
[job]
name = "skew"
[cluster]
workers = 4
[stages.joined.inputs.rows]
path = "in/*.parquet"
key = ["key"]
[stages.joined.inputs.others]
path = "others/*.parquet"
key = ["key"]
broadcast = false
[stages.joined.reduce]
join = "inner"
[inputs.joined]
stage = "joined"
[reduce]
group_by = ["name"]
[reduce.aggregate]
rows = "count(*)"
first = "first(value)"
last = "last(value)"
[output]
table = "out"
"""


@pytest.mark.slow
def test_a_skewed_key_of_a_stage_is_split_for_the_maps_that_read_it(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    others = write_others(tmp_path)
    result = mrflight.run(write_job(tmp_path, STAGES))
    assert len(slices) == 2
    assert [partition_slice.side_slice for partition_slice in slices] == side_slices(len(slices))
    joined = rows.join(others, "key", join_type="inner").sort_by("value")
    table = pa.TableGroupBy(joined, "name", use_threads=False).aggregate(
        [([], "count_all"), ("value", "first"), ("value", "last")]
    )
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().sort_by("name")
    expected = table.rename_columns(found.column_names).sort_by("name")
    assert found == expected.cast(found.schema)
    assert result.attempts.failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 3])
def test_a_limit_leaves_rows_of_slices_unread(
    limit: int, tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan]
) -> None:
    """Each map that reads a slice needs only so many rows."""
    others = write_others(tmp_path)
    of_limit = f'[reduce]\nlimit = {limit}\n[output]\ntable = "out"\n'
    text = STAGES.partition("[reduce]\ngroup_by")[0] + of_limit
    result = mrflight.run(write_job(tmp_path, text))
    assert len(slices) == 2
    assert (result.rows_out, result.attempts.failed) == (limit, 0)
    joined = rows.join(others, "key", join_type="inner")
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().select(joined.column_names)
    others_than_joined = found.cast(joined.schema).join(
        joined, joined.column_names, None, "left anti"
    )
    assert len(others_than_joined) == 0


@pytest.mark.slow
def test_if_slices_of_a_stage_miss_rows_all_stages_run_again(
    tmp_path: Path, rows: pa.Table, slices: list[ReduceTaskPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the driver can notice the rows of a slice that a server has lost."""
    others = pa.table({"key": [7, *range(8, FILES * ROWS, 3)]})
    (tmp_path / "others").mkdir()
    pq.write_table(others, tmp_path / "others" / "others.parquet")
    text = STAGES.replace('"name"', '"key"')
    checked = []

    def miss_rows(read: Iterable[tuple[PartitionInfo, int]]) -> None:
        read = list(read)
        checked.append(len(read))
        check_slices([(info, rows - (len(checked) == 3)) for info, rows in read])

    monkeypatch.setattr("mrflight.scheduler.stage_output.check_slices", miss_rows)
    result = mrflight.run(write_job(tmp_path, text))
    assert checked == [0, 0, len(slices) // 2] * 2
    joined = rows.join(others, "key", join_type="inner")
    assert result.rows_out == pc.count_distinct(joined["key"]).as_py()
    found = DeltaTable(tmp_path / "out").to_pyarrow_table()
    assert pc.sum(found["rows"]).as_py() == len(joined)
