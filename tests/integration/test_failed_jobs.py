"""A job that fails says in its result which job it was, and what was tried."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.commands.driver import drive, write_job
from tests.support.faults.gated_job import gated_job

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "raises"
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

REDUCE = """
[reduce]
function = "raising:fail"
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


def test_a_failure_in_the_map_tells_what_was_known(folder: Path) -> None:
    done = drive(write_job(folder, JOB))
    assert done.result["table"] == str(folder / "out")
    assert done.result["partitions"] == 3
    assert (done.result["rows_in"], done.result["bytes_shuffled"]) == (0, 0)
    assert done.result["peak_memory_bytes"] > 0
    assert_stages(done.result["seconds"], "start", "map")


def test_a_failure_in_the_reduce_tells_what_the_map_did(folder: Path) -> None:
    text = JOB.replace('map = "raising:fail"\n', "")
    done = drive(write_job(folder, text.replace("[output]", REDUCE + "[output]")))
    assert done.code == 2, done.stderr
    assert done.result["rows_in"] == 2
    assert done.result["bytes_shuffled"] > 0
    assert (done.result["rows_out"], done.result["version"]) == (0, None)
    assert_stages(done.result["seconds"], "start", "map", "reduce")


def test_an_interrupted_job_tells_what_was_known(tmp_path: Path) -> None:
    job = gated_job(tmp_path, "parquet", "overwrite")
    with job.gated() as driver:
        driver.process.send_signal(signal.SIGINT)
        done = driver.end()
    assert done.code == 130, done.stderr
    assert done.result["state"] == "interrupted"
    assert done.result["table"] == str(job.table)
    assert done.result["rows_in"] == len(job.keys)
    assert done.result["peak_memory_bytes"] > 0
    assert_stages(done.result["seconds"], "start", "map", "reduce")


def assert_stages(seconds: dict[str, float], *names: str) -> None:
    """These have taken time, and no other; the clean-up after them is of the total only."""
    stages = {name: took for name, took in seconds.items() if name != "total"}
    assert {name for name, took in stages.items() if took > 0} == set(names)
    assert sum(stages.values()) <= seconds["total"] + 0.001


@pytest.mark.parametrize("attempts", [0, 101])
def test_a_wrong_job_file_is_no_job(folder: Path, attempts: int) -> None:
    done = drive(write_job(folder, JOB), "--set", f"job.attempts={attempts}")
    assert done.code == 2
    assert f"job.attempts must be from 1 to 100, not {attempts}" in done.message
    assert done.result["job_id"] == ""
    assert done.result["attempts"] == {"map": 0, "reduce": 0, "failed": 0}
    assert done.result["seconds"]["total"] > 0
