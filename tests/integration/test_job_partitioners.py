"""Jobs whose rows go to partitions by key, by range, in turn, or as a user's function says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.commands.driver import drive, write_job
from tests.support.jobs.clicks_job import VISITS, as_read, write_visits
from tests.support.queries.oracle import rows

pytestmark = pytest.mark.runs_on_ray


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


@pytest.mark.slow_but("4")
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


def test_part_files_can_have_the_order_of_the_input(tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    job = write_job(
        tmp_path,
        """
        [job]
        name = "ordered"
        [inputs.visits]
        path = "visits"
        [shuffle]
        partitions = 3
        partitioner = "in_order"
        [output]
        table = "out"
        format = "parquet"
        """,
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    parts = [pyarrow.parquet.read_table(path) for path in sorted((tmp_path / "out").glob("part-*"))]
    inputs = [pyarrow.csv.read_csv(path) for path in sorted((tmp_path / "visits").glob("*"))]
    assert pa.concat_tables(parts).to_pylist() == pa.concat_tables(inputs).to_pylist()
    assert len(parts) == min(3, len(inputs))


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
