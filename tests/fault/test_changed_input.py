"""Files change after the job has listed them: it fails with that message and commits nothing.

A file that is cut at a line end, or emptied, would otherwise be read as if it were whole.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tests.support.commands.driver import DriverRun, write_job
from tests.support.faults import faulty_functions
from tests.support.faults.faulty_run import faulty_run

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

JOB = """
[job]
name = "changed"
[inputs.rows]
path = "in"
map = "functions:narrow"
key = ["k"]
[reduce]
group_by = ["k"]
aggregate = { v = "sum(v)" }
[output]
table = "out"
format = "parquet"
[cluster]
workers = 1
"""

FIRST, LAST = 0, 2
"""Files, which the one worker maps in their order."""

ROWS = 300_000
"""The rows of the first file: more than one chunk or batch, so that some are not read yet."""

OF_OTHERS = 1_000


def rows(file: int, count: int) -> pa.Table:
    numbers = pa.array(range(count), pa.int64())
    of_file = pa.repeat(pa.scalar(file, pa.int64()), count)
    first = pa.repeat(pa.scalar(0, pa.int64()), count)
    columns = {"file": of_file, "part": first, "k": numbers, "v": numbers, "n": numbers}
    return pa.table(columns)


def as_csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(table, out)
    return out.getvalue()


def as_gzip(table: pa.Table) -> bytes:
    return gzip.compress(as_csv(table), 1)


def as_json(table: pa.Table) -> bytes:
    names = table.column_names
    lines = (
        ", ".join(f'"{name}": {value}' for name, value in zip(names, row, strict=True))
        for row in zip(*table.to_pydict().values(), strict=True)
    )
    return "".join(f"{{{line}}}\n" for line in lines).encode()


def as_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(table, out, row_group_size=ROWS // 4)
    return out.getvalue()


def as_arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table, max_chunksize=ROWS // 4)
    return out.getvalue()


FORMATS: dict[str, Callable[[pa.Table], bytes]] = {
    "csv": as_csv,
    "csv.gz": as_gzip,
    "json": as_json,
    "parquet": as_parquet,
    "arrow": as_arrow,
}
BUT_CSV = [name for name in FORMATS if name != "csv"]
"""Which is cut to nothing by a test of changes."""


@cache
def contents(file: int, format: str) -> bytes:
    return FORMATS[format](rows(file, OF_OTHERS if file else ROWS))


def write_inputs(folder: Path, format: str) -> Path:
    """The job, its functions, and a file of many rows before two of few."""
    (folder / "in").mkdir()
    (folder / "places").mkdir()
    for file in range(LAST + 1):
        (folder / "in" / f"{file}.{format}").write_bytes(contents(file, format))
    shutil.copy(faulty_functions.__file__, folder / "functions.py")
    return write_job(folder, JOB)


def changed_meanwhile(job: Path, change: Callable[[], None]) -> DriverRun:
    """The end of a job in which this was done between the first batch's map and the second's."""
    with faulty_run(job, ("map 0 batch 0",)) as run:
        run.at("map 0 batch 0")
        change()
        run.go_on()
        done = run.finish()
    assert done.code == 2, done.stderr
    assert done.result["state"] == "failed"
    assert not list((job.parent / "out").rglob("*.parquet"))
    assert not (job.parent / "out" / "_mrflight").exists()
    return done


def assert_told(done: DriverRun, message: str, path: Path) -> None:
    """In the first line; the second is the task's name, whose number says how files were cut."""
    first, second = done.message.splitlines()
    assert first == message
    assert second.startswith("  in map ")
    assert str(path) in second


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def cut_at_a_line_end(path: Path) -> None:
    data = path.read_bytes()
    os.truncate(path, data.rindex(b"\n", 0, len(data) * 9 // 10) + 1)


def append_a_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"0,0,1,1,1\n")


def replace_by_one_of_its_size(path: Path) -> None:
    other = path.with_name("_other")
    other.write_bytes(path.read_bytes().replace(b"7", b"8"))
    os.replace(other, path)


@pytest.mark.parametrize("file", [FIRST, LAST], ids=["as it is read", "before it is read"])
@pytest.mark.parametrize(
    "change", [cut_to_nothing, cut_at_a_line_end, append_a_line, replace_by_one_of_its_size]
)
def test_a_change_of_a_file_fails_the_job(
    change: Callable[[Path], None], file: int, tmp_path: Path
) -> None:
    job = write_inputs(tmp_path, "csv")
    path = tmp_path / "in" / f"{file}.csv"
    before = path.stat().st_size
    done = changed_meanwhile(job, lambda: change(path))
    after = path.stat().st_size
    what = f"it had {before:,} bytes when the job began, and has {after:,} now"
    if after == before:
        what = f"its {before:,} bytes were rewritten after the job began"
    assert_told(done, f"{path} changed while the job ran: {what}; run the job again", path)
    assert done.result["attempts"]["failed"] == 1


@pytest.mark.parametrize("file", [FIRST, LAST], ids=["as it is read", "before it is read"])
@pytest.mark.parametrize("format", BUT_CSV)
def test_files_of_every_format_are_looked_at(format: str, file: int, tmp_path: Path) -> None:
    """Cut as they are mapped into memory they end their worker; the next attempt says why."""
    job = write_inputs(tmp_path, format)
    path = tmp_path / "in" / f"{file}.{format}"
    before = path.stat().st_size
    done = changed_meanwhile(job, lambda: cut_to_nothing(path))
    what = f"it had {before:,} bytes when the job began, and has 0 now"
    assert_told(done, f"{path} changed while the job ran: {what}; run the job again", path)
