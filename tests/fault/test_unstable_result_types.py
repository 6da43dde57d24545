"""A reduce function whose types depend on the rows fails with that message, and commits nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.formats import OutputFormat
from tests.support.commands.driver import drive, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.tables.outputs import READERS, Output

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "infers"
[inputs.rows]
path = "in.csv"
key = ["k"]
[shuffle]
partitions = 4
[reduce]
function = "functions:infers"
[output]
table = "out/table"
mode = "overwrite"
format = "FORMAT"
[cluster]
workers = 2
"""

FUNCTIONS = """
import pyarrow as pa

def infers(table):
    '''As many do: rows in Python, and types from their values.'''
    rows = table.to_pylist()
    if 0 in table["k"].to_pylist():
        rows = [{**row, "v": str(row["v"])} for row in rows]
    return pa.Table.from_pylist(rows)
"""

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.mark.parametrize("format", ["delta", "parquet", "arrow"])
def test_types_that_differ_between_partitions(tmp_path: Path, format: OutputFormat) -> None:
    job = written(tmp_path, format, range(40))
    Output(tmp_path, format).run(job_id="old")
    before = tree(tmp_path / "out")
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(job, environment=environment)
    assert done.code == 2, done.stderr
    assert "column 'v' is " in done.message
    assert "int64 in partition " in done.message
    assert "string in partition " in done.message
    assert "cast it in the function" in done.message
    assert tree(tmp_path / "out") == before


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "parquet", "csv", "arrow"])
def test_what_it_makes_of_no_rows_does_not_count(tmp_path: Path, format: OutputFormat) -> None:
    """Three of the four partitions have none, for which it returns a table without columns.

    The one with rows is the last.
    """
    job = written(tmp_path, format, range(4, 5))
    done = drive(job)
    assert done.code == 0, done.stderr
    found = READERS[format](tmp_path / "out" / "table", SCHEMA)
    assert found.to_pylist() == [{"k": 4, "v": 40}]


def written(folder: Path, format: OutputFormat, keys: range) -> Path:
    (folder / "in.csv").write_text("k,v\n" + "".join(f"{key},{10 * key}\n" for key in keys))
    (folder / "functions.py").write_text(FUNCTIONS)
    return write_job(folder, JOB.replace("FORMAT", format))
