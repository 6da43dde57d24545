"""A merge by the real command on each store, and one whose driver is killed as it rewrites."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from mrflight.storage import Location, locate
from mrflight.storage.delta import storage_options, table_uri
from tests.support.commands.driver import drive, driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.commands.running_command import running_command
from tests.support.faults.gated_job import clean

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "merge"
run_id = "tuesday"
[inputs.rows]
path = "in.csv"
[shuffle]
partitions = 2
[output]
table = "TABLE"
mode = "merge"
keys = ["id", "p"]
order_by = "at"
delete_when = "op = 'D'"
partition_by = ["p"]
[storage]
OPTIONS
[cluster]
workers = 2
"""


def job(folder: Path, table: Location, rows: list[str]) -> Path:
    options = "\n".join(f'{key} = "{value}"' for key, value in table.options.items())
    text = JOB.replace("TABLE", table.url).replace("OPTIONS", options)
    (folder / "in.csv").write_text("\n".join(["id,p,v,at,op", *rows]) + "\n")
    return write_job(folder, text)


def read(table: Location) -> dict[tuple[int, str], str]:
    found = deltalake.DeltaTable(table_uri(table), storage_options=storage_options(table))
    rows: list[dict[str, Any]] = found.to_pyarrow_table().to_pylist()
    by_key = {(row["id"], row["p"]): row["v"] for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def write(table: Location, ids: list[int], p: list[str]) -> None:
    """The table, by somebody who knows nothing of mrflight."""
    rows = pa.table({"id": ids, "p": p, "v": ["x"] * len(ids), "at": [1] * len(ids)})
    options = storage_options(table)
    deltalake.write_deltalake(
        table_uri(table), rows, mode="append", partition_by=["p"], storage_options=options
    )


@pytest.mark.also_on("s3")
def test_a_table_is_merged_into(place: Location, tmp_path: Path) -> None:
    table = place.child("table")
    write(table, [1, 2, 3], ["a b", "a b", "50%"])
    rows = ["1,a b,z,3,I", "3,50%,x,4,D", "5,50%,v,2,I", "5,50%,w,3,I", "2,50%,w,3,I"]
    done = drive(job(tmp_path, table, rows))
    assert done.code == 0, done.stderr
    assert (done.result["version"], done.result["rows_out"]) == (1, 3)
    assert done.result["merged"] == {
        "rows_updated": 1,
        "rows_deleted": 1,
        "files_rewritten": 1,
        "files_removed": 1,
    }
    assert "rewrite: 2 files read, 2 changed" in done.stderr
    assert read(table) == {(1, "a b"): "z", (2, "a b"): "x", (5, "50%"): "w", (2, "50%"): "w"}
    assert not any(".keys." in info.base_name for info in table.walk())


@pytest.mark.slow
def test_a_driver_that_is_killed_as_it_rewrites(tmp_path: Path) -> None:
    """It waits for a file of the table that is a FIFO, which nobody ever writes."""
    table = locate("table", tmp_path)
    folder = Path(table.path)
    write(table, [1, 2], ["a", "a"])
    before = tree(folder)
    (path,) = folder.glob("p=a/*.parquet")
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    merge = job(tmp_path, table, ["1,a,y,2,I", "2,a,y,2,D"])
    with (
        nothing_left_over(tmp_path / "tmp") as environment,
        running_command(driver_command(merge), environment) as driver,
    ):
        assert driver.stderr is not None
        assert any(line.startswith("reduce: 1 row ") for line in driver.stderr)  # up to that one
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    path.unlink()
    path.write_bytes(content)
    left = set(tree(folder)) - set(before)
    assert {name.split(".", 1)[1] for name in left} == {"parquet", "keys.parquet"}
    assert {name: tree(folder)[name] for name in before} == before
    assert read(table) == {(1, "a"): "x", (2, "a"): "x"}
    for _ in range(2):
        again = drive(merge)
        assert (again.code, again.result["version"]) == (0, 1), again.stderr
    assert "is already committed" in again.stderr
    assert read(table) == {(1, "a"): "y"}
    assert clean(folder, "--remove") == left
    assert read(table) == {(1, "a"): "y"}
