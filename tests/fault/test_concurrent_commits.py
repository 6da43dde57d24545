"""Drivers commit to one table at the same time: all rows are there, or the loser gets an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.formats import OutputFormat
from tests.support.commands.driver import DriverRun, drive
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.gated_job import (
    OLD,
    SCHEMA,
    GatedJob,
    gated_job,
    old_table,
    unnamed_files,
)

pytestmark = pytest.mark.runs_on_ray

SLOW, FAST = range(100), range(2000, 2010)


def meanwhile(job: GatedJob, other: Callable[[], object]) -> DriverRun:
    """Run the job, and commit ``other`` after the job has read the table and before it commits."""
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        other()
        driver.open_gate()
        return driver.end()


def drive_well(job: GatedJob) -> None:
    done = drive(job.path)
    assert done.code == 0, done.stderr


def assert_lost(done: DriverRun, code: int, message: str, table: Path) -> None:
    assert done.code == code, done.stderr
    assert message in done.message
    assert str(table) in done.message
    assert done.result["state"] == "failed"
    assert unnamed_files(table) == set()


@pytest.mark.slow_but("new delta")
@pytest.mark.parametrize(
    ("format", "existing"),
    [("delta", False), ("delta", True), ("parquet", True)],
    ids=["new delta", "delta", "parquet"],
)
def test_appends_at_the_same_time_all_land(
    tmp_path: Path, format: OutputFormat, existing: bool
) -> None:
    if existing:
        old_table(tmp_path, format)
    jobs = [
        gated_job(tmp_path, format, keys=range(i, i + 100), name=f"job{i}", workers=1)
        for i in range(0, 3000, 1000)
    ]
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(nothing_left_over(job.folder / "tmp"))
        drivers = [stack.enter_context(job.gated()) for job in jobs]
        for driver in drivers:
            driver.open_gate()
        ended = [driver.end() for driver in drivers]
    assert [done.code for done in ended] == [0] * 3, [done.stderr for done in ended]
    expected = [key for job in jobs for key in job.keys] + (list(OLD) if existing else [])
    assert jobs[0].read() == sorted(expected)
    if format == "delta":
        first = 1 if existing else 0
        assert sorted(done.result["version"] for done in ended) == [first, first + 1, first + 2]
    assert unnamed_files(jobs[0].table) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "existing"), [("append", False), ("overwrite", True)])
def test_a_plain_folder_that_another_job_writes_to(
    tmp_path: Path, mode: str, existing: bool
) -> None:
    """The files do not show whether the other job is alive, and readers would see them."""
    old = list(old_keys(tmp_path)) if existing else []
    job = gated_job(tmp_path, "parquet", keys=SLOW)
    other = gated_job(tmp_path, "parquet", mode, keys=FAST, name="other")
    refused: list[DriverRun] = []
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        driver.wait_for_parts()
        refused.append(drive(other.path))
        driver.open_gate()
        done = driver.end()
    assert done.code == 0, done.stderr
    assert refused[0].code == 2
    assert "of another job of mrflight, which runs or was killed" in refused[0].message
    assert job.read() == [*SLOW, *old]
    assert unnamed_files(job.table) == set()
    drive_well(other)
    assert job.read() == [*([] if existing else SLOW), *FAST]


def old_keys(base: Path) -> range:
    old_table(base, "parquet")
    return OLD


@pytest.mark.slow
def test_an_append_after_an_overwrite_keeps_both(tmp_path: Path) -> None:
    old_table(tmp_path, "delta")
    job = gated_job(tmp_path, "delta", keys=SLOW)
    faster = gated_job(tmp_path, "delta", "overwrite", keys=FAST, name="faster")
    done = meanwhile(job, lambda: drive_well(faster))
    assert done.code == 0, done.stderr
    assert job.read() == [*SLOW, *FAST]
    assert unnamed_files(job.table) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "mode"), [("delta", "append"), ("delta", "overwrite"), ("parquet", "append")]
)
def test_an_overwrite_takes_away_nothing_that_it_has_not_seen(
    tmp_path: Path, format: OutputFormat, mode: str
) -> None:
    table = old_table(tmp_path, format)
    job = gated_job(tmp_path, format, "overwrite", keys=SLOW)
    faster = gated_job(tmp_path, format, mode, keys=FAST, name="faster")
    done = meanwhile(job, lambda: drive_well(faster))
    assert_lost(done, 1, "nothing was committed, run it again", table)
    assert job.read() == [*(OLD if mode == "append" else ()), *FAST]
    drive_well(job)  # as the message says
    assert job.read() == list(SLOW)


def add_column(table: Path) -> None:
    rows = pa.table({"k": pa.array([1]), "more": ["x"]})
    write_deltalake(table, rows, mode="append", schema_mode="merge")


def change_type(table: Path) -> None:
    rows = pa.table({"k": ["one"]})
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")


def change_partition_by(table: Path) -> None:
    rows = pa.table({"k": pa.array([1]), "day": ["x"]})
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=["day"])


def rearrange(table: Path) -> None:
    assert DeltaTable(table).optimize.compact()["numFilesRemoved"] > 1


@pytest.mark.slow_but("overwrite-change_type-1-version 1")
@pytest.mark.parametrize(
    ("mode", "change", "code", "message"),
    [
        ("append", add_column, 2, "its column 'more' (string) is not in the result"),
        ("append", change_type, 2, "its column 'k' is string and the result's is int64"),
        ("append", change_partition_by, 2, "it is partitioned by ['day'], not []"),
        ("overwrite", add_column, 1, "version 1, which added rows and changed the schema"),
        ("overwrite", change_type, 1, "version 1, which added rows and changed the schema"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value)[:9],
)
def test_a_schema_that_another_writer_changed(
    tmp_path: Path, mode: str, change: Callable[[Path], None], code: int, message: str
) -> None:
    table = old_table(tmp_path, "delta")
    job = gated_job(tmp_path, "delta", mode, keys=SLOW)
    after: list[dict[str, str]] = []

    def other() -> None:
        change(table)
        after.append(committed(table))

    done = meanwhile(job, other)
    assert_lost(done, code, message, table)
    assert [committed(table)] == after


def committed(table: Path) -> dict[str, str]:
    """The log, and the files of the newest version."""
    named = {Path(uri).name for uri in DeltaTable(table).file_uris()}
    return {
        path: content
        for path, content in tree(table).items()
        if path.startswith("_delta_log/") or Path(path).name in named
    }


def test_files_that_were_only_rearranged_are_no_conflict(tmp_path: Path) -> None:
    table = old_table(tmp_path, "delta")
    job = gated_job(tmp_path, "delta", "overwrite", keys=SLOW)
    done = meanwhile(job, lambda: rearrange(table))
    assert done.code == 0, done.stderr
    assert job.read() == list(SLOW)
    assert SCHEMA.equals(pa.schema(DeltaTable(table).schema().to_arrow()))
