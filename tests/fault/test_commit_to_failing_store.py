"""The disk refuses a commit, or answers with an error although the commit was made."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from deltalake import DeltaTable

from mrflight.config.formats import OutputFormat
from tests.support.commands.driver import drive
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.faults.gated_job import (
    SCHEMA,
    commits_of,
    gated_job,
    old_table,
    unnamed_files,
)

pytestmark = pytest.mark.runs_on_ray

RUN = "2026-11-20"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_log_entry_that_does_not_fit(tmp_path: Path, format: OutputFormat) -> None:
    """The system lets the driver write 64 bytes of it, then says that the file is too large."""
    table = old_table(tmp_path, format)
    before = tree(table)
    job = gated_job(tmp_path, format, "overwrite", RUN)
    with nothing_left_over(job.folder / "tmp"), job.gated() as driver:
        resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (64, 64))
        driver.open_gate()
        done = driver.end()
    assert done.code == 1, done.stderr
    assert "File too large" in done.message
    assert str(table) in done.message
    assert tree(table) == before
    assert drive(job.path).code == 0
    assert job.read() == list(job.keys)


@pytest.mark.slow
def test_a_commit_that_was_made_though_the_call_failed(tmp_path: Path) -> None:
    """delta-rs writes the checkpoint after the entry, and raises where that cannot be done."""
    table = tmp_path / "out" / "table"
    always: dict[str, str | None] = {"delta.checkpointInterval": "1"}
    DeltaTable.create(table, SCHEMA, configuration=always)
    checkpoint = table / "_delta_log" / f"{1:020}.checkpoint.parquet"
    checkpoint.mkdir()
    job = gated_job(tmp_path, "delta", run_id=RUN)
    for _ in range(2):
        done = drive(job.path)
        assert done.code == 0, done.stderr
        assert done.result["version"] == 1
        assert commits_of(table, f"mrflight/gated/{RUN}") == 1
        assert job.read() == list(job.keys)
        assert unnamed_files(table) == set()
    assert list(checkpoint.iterdir()) == []  # it was in the way
