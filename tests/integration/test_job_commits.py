"""The table that a job commits to: its versions, and the folders that it is partitioned by."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pytest
from deltalake import DeltaTable

from tests.support.commands.driver import drive
from tests.support.commands.leftovers import tree
from tests.support.jobs.clicks_job import VISITS, WEIGH, as_read, expected_clicks, write_visits
from tests.support.queries.oracle import rows

pytestmark = pytest.mark.runs_on_ray


@pytest.mark.slow
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


@pytest.mark.slow_but("delta-0")
@pytest.mark.parametrize(("format", "version"), [("delta", 0), ("parquet", None)])
def test_a_rerun_of_the_same_run_id_is_a_no_op(
    clicks: Path, tmp_path: Path, format: str, version: int | None
) -> None:
    write_visits(tmp_path / "visits", "csv")
    options = (
        *("--set", "job.run_id=2026-11-20"),
        *("--set", "output.mode=append"),
        *("--set", f"output.format={format}"),
    )
    first = drive(clicks, *options)
    before = tree(tmp_path / "out")
    second = drive(clicks, *options)
    assert (first.code, second.code) == (0, 0)
    assert second.result["state"] == "committed"
    assert second.result["version"] == first.result["version"] == version
    assert tree(tmp_path / "out") == before


@pytest.mark.slow
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
