"""``mrflight clean`` removes the bad rows of a killed driver, and none that may count."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import mrflight
from tests.support.commands.clean_command import run_clean
from tests.support.commands.driver import drive
from tests.support.commands.leftovers import nothing_left_over
from tests.support.faults.gated_job import (
    KILLED_BY_A_LONG_FILE,
    GatedJob,
    clean,
    gated_job,
    kill_at_file_size,
)

pytestmark = pytest.mark.runs_on_ray

BAD_ROWS = ("--set", "inputs.rows.bad_rows=bad")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[GatedJob]:
    """A job that has left bad rows, and succeeded."""
    job = gated_job(tmp_path, "delta")
    with (job.folder / "in.csv").open("a") as file:
        file.write("no,number\n")
    assert drive(job.path, *BAD_ROWS).code == 0
    assert len(files(job)) == 1  # no mark
    with nothing_left_over(job.folder / "tmp"):
        yield job


def files(job: GatedJob) -> set[str]:
    return {path.name for path in (job.folder / "bad").iterdir()}


@pytest.mark.slow
def test_what_a_killed_driver_left_is_listed_then_removed(job: GatedJob) -> None:
    bad, before = job.folder / "bad", files(job)
    with job.gated(*BAD_ROWS) as driver:
        driver.wait_for_parts()
        left = files(job) - before
        assert len(left) == 2
        running = run_clean(bad, "--older-than", "0 s", "--remove")
        assert (running.returncode, running.stdout) == (0, "")  # its driver holds the mark
        assert "2 newer files may belong to a running job" in running.stderr
        driver.process.send_signal(signal.SIGKILL)
        assert driver.end().code == -signal.SIGKILL
    assert run_clean(bad, "--remove").files == set()  # it is too young
    listed = run_clean(bad, "--older-than", "0 s")
    assert listed.stdout.splitlines()[-1].startswith("_unfinished-")
    assert listed.stderr.endswith("left over; --remove removes them\n")
    assert listed.files == left == files(job) - before
    assert clean(bad, "--remove") == left
    assert files(job) == before
    assert clean(bad) == set()
    assert len(mrflight.read_table(bad)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("limit_bytes", "part"), [(64, b'{"counted":["bad-'), (200, b'jsonl"]}')])
def test_what_may_count_stays(job: GatedJob, limit_bytes: int, part: bytes) -> None:
    """The kernel kills the driver as it writes the mark, or the log entry after it."""
    bad, before = job.folder / "bad", files(job)
    with job.gated(*BAD_ROWS, command=KILLED_BY_A_LONG_FILE) as driver:
        driver.wait_for_parts()
        kill_at_file_size(driver, limit_bytes)
    mark, counted = sorted(files(job) - before)
    assert part in (bad / mark).read_bytes()
    found = run_clean(bad, "--older-than", "0 s", "--remove")
    assert found.files == {mark}
    assert f"as it committed and may have succeeded: {counted}" in found.stderr
    assert files(job) == before | {counted}
