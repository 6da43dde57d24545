"""Jobs that skip bad rows: how many there were is said wherever the rows go, and they are kept."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import UserFunctionError
from mrflight.scheduler.bad_row_files import BadRowFiles

FILES = 3
ROWS = 2_000
SMALL = {"cluster.workers": 2, "cluster.memory": "1 GiB", "job.speculation": False}
GOOD = [n for n in range(FILES * ROWS) if n % 100]
BAD = FILES * ROWS // 100
LONG = "no number" * 10_000
"""So long that a few of them are more than an attempt holds before it writes."""


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mrflight.Dataset:
    """Return visits in the current folder, of which every 100th cannot be read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits").mkdir()
    for file in range(FILES):
        with open(f"visits/{file}.csv", "w", newline="") as stream:
            write = csv.writer(stream).writerow
            write(["n", "user"])
            for n in range(file * ROWS, (file + 1) * ROWS):
                write([n if n % 200 else LONG, n % 7, *["more"] * (n % 200 == 100)])
    return skipping("skip")


def skipping(bad_rows: str) -> mrflight.Dataset:
    types = {"n": "int64", "user": "int64"}
    return mrflight.read("visits", types=types, bad_rows=bad_rows).with_settings(SMALL)


def kept(folder: str = "bad") -> list[tuple[str, int]]:
    """Return the files and lines of the bad rows in a folder, by mrflight itself."""
    rows = mrflight.read_table(folder)
    assert rows.schema.names == ["file", "line", "reason", "text"]
    each = rows.select(["file", "line"]).to_pylist()
    return sorted((Path(row["file"]).name, row["line"]) for row in each)


ALL_BAD = [(f"{file}.csv", n + 2) for file in range(FILES) for n in range(0, ROWS, 100)]


@pytest.mark.slow
def test_rows_are_skipped_and_counted(
    visits: mrflight.Dataset,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    batches = visits.batches()
    assert [n for batch in batches for n in batch["n"].to_pylist()] == GOOD
    read = batches.result
    assert (read.state, read.bad_rows, read.error) == ("read", {"visits": BAD}, None)
    assert (read.rows_in, read.rows_out) == (len(GOOD), len(GOOD))
    assert (read.attempts.map > 0, read.attempts.failed) == (True, 0)
    assert read == batches.result  # its time has ended as well
    assert capsys.readouterr().err.count(f"\n{BAD} bad rows of visits skipped\n") == 1
    assert visits.head(3)["n"].to_pylist() == GOOD[:3]
    assert caplog.messages == [
        f"{BAD // FILES} bad rows of visits skipped, up to the last row that was asked for"
    ]
    users = mrflight.read("visits/0.csv", name="some", bad_rows="skip").distinct().alias("users")
    result = visits.join(users, "user", how="semi").write_parquet("out")
    assert result.bad_rows == {"visits": BAD, "users.some": 10}
    assert result.rows_in == len(GOOD) + ROWS - 10


def dies_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """End the worker, whose map has written bad rows by then, once for each of two maps."""
    first = batch["n"][0].as_py()
    if first in (1, ROWS + 1):
        try:
            os.symlink("died", f"died-{first}")
        except FileExistsError:
            return batch
        os._exit(1)
    return batch


@pytest.mark.slow
def test_a_map_that_is_tried_again_leaves_one_file(
    visits: mrflight.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The small files are not packed, so that there are several maps.
    monkeypatch.setattr("mrflight.planner.stage_plan._MIN_SPLIT_BYTES", 300_000)
    monkeypatch.setattr("mrflight.planner.stage_plan._PACKS_PER_WORKER", 10_000)
    clean_up, written = BadRowFiles.clean_up, []

    def look(files: BadRowFiles) -> None:
        written.extend(os.listdir("bad"))
        clean_up(files)

    monkeypatch.setattr(BadRowFiles, "clean_up", look)
    result = skipping("bad").map(dies_once).write_parquet("out")
    assert (result.bad_rows, result.rows_in) == ({"visits": BAD}, len(GOOD))
    marks = {name for name in written if name.startswith("_")}
    assert (result.attempts.failed, len(written)) == (2, result.attempts.map + len(marks))
    assert len(marks) == 1
    assert len(os.listdir("bad")) == result.attempts.map - 2
    assert kept() == ALL_BAD


def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("no such visitor")


@pytest.mark.slow
def test_a_job_that_fails_leaves_no_bad_rows(visits: mrflight.Dataset) -> None:
    with pytest.raises(UserFunctionError):
        skipping("a/bad").map(fails).write_parquet("out")
    assert sorted(os.listdir()) == ["visits"]


@pytest.mark.slow
def test_a_caller_who_breaks_off_has_the_bad_rows_of_all_maps(visits: mrflight.Dataset) -> None:
    with skipping("bad").batches() as batches:
        assert (batches.result.state, batches.result.bad_rows) == ("running", {})
        first = next(batches)
        assert batches.result.bad_rows == {"visits": BAD}
    result = batches.result
    assert (result.state, result.rows_in, result.rows_out) == ("stopped", len(GOOD), len(first))
    assert kept() == ALL_BAD


@pytest.mark.slow
def test_a_caller_of_batches_that_fail_has_the_message(visits: mrflight.Dataset) -> None:
    failing = visits.filter("n / 0 > 1").batches()
    with pytest.raises(mrflight.MrflightError) as error:
        next(failing)
    assert (failing.result.state, failing.result.error) == ("failed", str(error.value))
