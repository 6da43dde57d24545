"""A job that fails says in its result which job it was, and what was tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.driver import drive, write_job

JOB = """
[job]
name = "raises"
attempts = 2
[inputs.rows]
path = "in.csv"
map = "raising:fail"
key = ["k"]
[shuffle]
partitions = 3
[output]
table = "out"
[cluster]
workers = 1
"""

RAISING = """
def fail(batch):
    raise RuntimeError("no such luck")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "raising.py").write_text(RAISING)
    (tmp_path / "in.csv").write_text("k\n1\n2\n")
    return tmp_path


def test_a_failure_has_its_job_and_its_attempts(folder: Path) -> None:
    done = drive(write_job(folder, JOB))
    assert done.code == 2, done.stderr
    assert "no such luck" in done.message
    assert done.result["state"] == "failed"
    assert done.result["attempts"] == {"map": 2, "reduce": 0, "failed": 2}
    first, second = done.result["job_id"], drive(folder / "job.toml").result["job_id"]
    assert first
    assert second
    assert first != second


@pytest.mark.parametrize("attempts", [0, 101])
def test_a_wrong_job_file_is_no_job(folder: Path, attempts: int) -> None:
    done = drive(write_job(folder, JOB), "--set", f"job.attempts={attempts}")
    assert done.code == 2
    assert f"job.attempts: {attempts} is not from 1 to 100" in done.message
    assert done.result["job_id"] == ""
    assert done.result["attempts"] == {"map": 0, "reduce": 0, "failed": 0}
